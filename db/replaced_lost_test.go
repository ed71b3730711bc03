package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A block that was found damaged, and put again, is damaged once more if a power cut takes what was put: what hangs below it is not
// stored without its prefix, and goes with a deletion of that.
func TestReplacementOfADamagedBlockIsLost(t *testing.T) {
	for i := range 4 {
		lost, deleted := i&1 > 0, i&2 > 0
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p)
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		k := s.eng.hasher.Chain(m.Fingerprint(), 16, &p).Key(1)
		at := func() index.Loc {
			v := s.eng.view()
			defer v.Release()
			x, ok, err := v.Get(k, 0)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			return x.Loc
		}
		zero := func(dir string, l index.Loc) {
			f, err := os.OpenFile(filepath.Join(dir, segmentsDir, filepath.Base(s.eng.segmentPath(l.Segment))), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(make([]byte, l.Length), l.Offset)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		zero(dir, at())
		expect(t, m, p, 16)
		put(t, m, p)
		expect(t, m, p, 64)
		image := copyStore(t, dir)
		zero(image, at())
		if err := os.WriteFile(filepath.Join(image, unsyncedName), nil, 0o600); err != nil { // as after a reboot
			t.Fatal(err)
		}
		if lost {
			if err := os.Remove(filepath.Join(image, indexName)); err != nil {
				t.Fatal(err)
			}
		}
		s = open(t, image, options())
		m = model(t, s, plain())
		if n, why, err := m.Probe(ctx, p, MatchOptions{}); n != 16 || err != nil {
			t.Errorf("index lost %v: %d tokens are promised (%v, %v)", lost, n, why, err)
		}
		expect(t, m, p, 16)
		got, err := s.Verify(ctx, VerifyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got.Damage {
			if strings.HasPrefix(d.What, "prefix") {
				t.Errorf("index lost %v: %v", lost, d)
			}
		}
		if deleted {
			if _, err := m.Delete(ctx, p.Prefix(32)); err != nil {
				t.Fatal(err)
			}
			put(t, m, p.Prefix(32))
			expect(t, m, p, 32)
			continue
		}
		put(t, m, p)
		expect(t, m, p, 64)
		if got, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(got.Damage) > 0 {
			t.Errorf("index lost %v: %v (%v)", lost, got.Damage, err)
		}
	}
}
