package segments

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// What many records' failures come to is one short error. The next Reclaim tries one record of each segment, and goes on only while that works.
func TestManyRecordsThatCannotBeDestroyed(t *testing.T) {
	s, d, _ := onDisk(t)
	var locs []Loc
	for i := range uint64(300) {
		locs = append(locs, makeBlock(1, i, 100).append(t, s, 1))
	}
	ok(t, s.Sync())
	segs := len(s.Segments())
	s.Destroy(locs)
	d.fails(failing(errSick, "write"))
	done, _, err := s.Reclaim(t.Context(), nil)
	if len(done) > 0 || !errors.Is(err, errSick) || !strings.HasSuffix(err.Error(), "; and 299 others") {
		t.Fatal(done, err)
	}
	if len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	for _, kinds := range [][]string{{"write", "punch"}, {"write", "punch"}, {"punch"}} {
		d.fails(failing(errSick, kinds...))
		done, _, err = s.Reclaim(t.Context(), nil)
		most := segs * (3 - len(kinds)) // before a hole cannot be punched, a header is written
		if calls := len(d.kinds()); len(done) > 0 || !errors.Is(err, errSick) || calls > most || len(err.Error()) > 1000 {
			t.Errorf("tried again: %d calls for %d segments; %v, an error of %d bytes", calls, segs, done, len(err.Error()))
		}
	}
	d.fails(nil)
	if done, _, err = s.Reclaim(t.Context(), nil); err != nil || len(done) != len(locs) {
		t.Errorf("%d of %d: %v", len(done), len(locs), err)
	}
	ok(t, s.Close())
}

// Where an fsync fails after something else did, the error says that nothing is written any more.
func TestPoisonAfterOneThatCannotBeDestroyed(t *testing.T) {
	s, d, _ := onDisk(t)
	locs := []Loc{makeBlock(1, 1, 100).append(t, s, 1), makeBlock(2, 2, 100).append(t, s, 2)}
	ok(t, s.Sync())
	s.Destroy(locs)
	written := false
	d.fails(func(op crashfs.Op) error {
		first := op.Kind == "write" && !written
		written = written || first
		if first || op.Kind == "sync" {
			return errSick
		}
		return nil
	})
	if _, _, err := s.Reclaim(t.Context(), nil); !errors.Is(err, errSick) || !errors.Is(err, vfs.ErrPoisoned) {
		t.Error(err)
	}
	s.Abandon()
}

// One record that can never be destroyed keeps the others of its segment at most once more from going. What was never tried it keeps from nothing.
func TestOneRecordThatCannotBeDestroyed(t *testing.T) {
	s, d, _ := onDisk(t)
	var locs []Loc
	for i := range uint64(8) {
		locs = append(locs, makeBlock(1, i, 100).append(t, s, 1))
	}
	ok(t, s.Sync())
	fresh := locs[6:]
	s.Destroy(locs[:6])
	d.fails(failing(errSick, "write", "punch"))
	if done, _, err := s.Reclaim(t.Context(), nil); len(done) > 0 || err == nil {
		t.Fatal(done, err)
	}
	fails := func(n int) { // of the writes from now on
		d.fails(func(op crashfs.Op) error {
			if op.Kind != "write" {
				return nil
			}
			if n--; n == 0 {
				return errSick
			}
			return nil
		})
	}
	s.Destroy(fresh)
	fails(3) // that of the first record
	if done, _, err := s.Reclaim(t.Context(), nil); !slices.Equal(done, fresh) || !errors.Is(err, errSick) {
		t.Errorf("%v, %v", done, err)
	}
	fails(6) // again
	if done, _, err := s.Reclaim(t.Context(), nil); !slices.Equal(done, locs[1:6]) || !errors.Is(err, errSick) {
		t.Errorf("%v, %v", done, err)
	}
	d.fails(nil)
	if done := reclaim(t, s); !slices.Equal(done, locs[:1]) {
		t.Error(done)
	}
	ok(t, s.Close())
}

// Reclaim does not wait for who walks over a segment: it destroys what lies in others, and the rest is ripe when the walk is over.
func TestReclaimBesideAWalk(t *testing.T) {
	for _, unlinks := range []bool{false, true} {
		s, _, _ := onDisk(t)
		walked, other := makeBlock(1, 1, 9000).append(t, s, 1), makeBlock(2, 2, 9000).append(t, s, 2)
		ok(t, s.Sync())
		s.Destroy([]Loc{walked, other})
		if unlinks {
			s.Unlink(walked.Segment, true)
		}
		began := false
		ok(t, s.Verify(t.Context(), walked.Segment, func(Loc) bool { return false }, func(e *damage.Error) { t.Error(e) }, func(int64) {
			if began {
				return
			}
			began = true
			reclaimed := make(chan []Loc)
			go func() {
				done, more, err := s.Reclaim(t.Context(), nil)
				if more || err != nil {
					t.Error(more, err)
				}
				reclaimed <- done
			}()
			select {
			case done := <-reclaimed:
				if !slices.Equal(done, []Loc{other}) || s.Ripe() || !s.Has(walked.Segment) {
					t.Errorf("unlinks %t: %v, ripe %t", unlinks, done, s.Ripe())
				}
			case <-time.After(20 * time.Second):
				t.Error("Reclaim waits for the walk")
				go func() { <-reclaimed }()
			}
		}))
		if n, bytes := s.Pending(); !s.Ripe() || n != 1 || bytes != walked.Length {
			t.Errorf("unlinks %t: after the walk, ripe %t, %d records of %d bytes wait", unlinks, s.Ripe(), n, bytes)
		}
		if done := reclaim(t, s); !slices.Equal(done, []Loc{walked}) || s.Has(walked.Segment) == unlinks || s.Ripe() {
			t.Errorf("unlinks %t: %v", unlinks, done)
		}
		ok(t, s.Close())
	}
}
