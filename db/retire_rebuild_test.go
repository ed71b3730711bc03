package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// What was put after its model was retired and registered again is there, also if the index is lost and a kill came when it had
// been moved, and the old places destroyed.
func TestMovedAfterRetireStays(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p, old := kv.Tokens(tokens(1, 64)...), kv.Tokens(tokens(2, 64)...)
	m := model(t, s, plain())
	put(t, m, p)
	put(t, m, old)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	m = model(t, s, plain())
	put(t, m, p)
	if err := s.eng.set.SealAll(); err != nil {
		t.Fatal(err)
	}
	var out Compacted
	if err := s.eng.rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records != 4 {
		t.Fatal(err, out)
	}
	for _, destroyed := range []bool{false, true} {
		if destroyed {
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for _, lost := range []bool{false, true} {
			image := copyStore(t, dir)
			if lost {
				if err := os.Remove(filepath.Join(image, indexName)); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, image, options())
			m := model(t, s, plain())
			t.Logf("destroyed %v, index lost %v", destroyed, lost)
			expect(t, m, old, 0)
			expect(t, m, p, 64)
		}
	}
}
