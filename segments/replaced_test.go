package segments

import (
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Where somebody removes the folder of an open store and makes another store there, nothing comes to the other's segments: not to one that is
// opened again by its name, whether it rests or was appended to.
func TestAnotherStoresSegmentIsNotWrittenTo(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, o Options) *Set{
		"appended to": func(t *testing.T, o Options) *Set {
			s := openSet(t, o)
			stored{}.add(t, s, 1, 1, 3000)
			ok(t, s.Sync())
			return s
		},
		"rests": func(t *testing.T, o Options) *Set {
			s := openSet(t, o)
			all := stored{}
			all.add(t, s, 1, 1, 3000)
			s = resumed(t, o, left(t, s))
			all.check(t, s) // its header is known
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			s := open(t, o)
			s.Trim()
			theirs := o
			theirs.Dir, theirs.UUID = t.TempDir(), kv.UUID{77}
			other := openSet(t, theirs)
			stored{}.add(t, other, 1, 2, 9000)
			path := other.files.byID[1].path
			ok(t, other.SealAll())
			ok(t, other.Close())
			mine := s.files.byID[1].path
			ok(t, os.Rename(path, mine))
			before := must(os.ReadFile(mine))(t)

			d, fp := testModel(1)
			r := makeBlock(1, 3, 3000).build(t)
			at, err := s.Append(d, fp, r)
			r.Release()
			if err != nil && !errors.Is(err, ErrForeign) || err == nil && at.Segment == 1 {
				t.Error(at, err)
			}
			s.Destroy([]Loc{{Segment: 1, Offset: s.files.byID[1].head.end(), Length: 4096}})
			_, _, _ = s.Reclaim(t.Context(), nil)
			s.Unlink(1, false)
			_, _, _ = s.Reclaim(t.Context(), nil)
			if after, err := os.ReadFile(mine); err != nil || string(after) != string(before) {
				t.Errorf("the other store's segment was changed: %v", err)
			}
			s.Abandon()
		})
	}
}
