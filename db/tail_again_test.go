package db

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A tail is superseded, then put once more beside the longer block; a power cut takes the longer block. The first copy of the tail is
// destroyed with the second when both are deleted, and does not come back. If the cut takes the second copy too, the first stands in.
func TestSupersededTailThatIsPutAgain(t *testing.T) {
	for i := range 8 {
		d := []kv.Descriptor{plain(), windowed(40)}[i&1]
		both, lost := i&2 > 0, i&4 > 0
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, d)
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p.Prefix(40))
		first := placeOf(t, m, p.Prefix(40), 2, 0)
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, m, p)
		torn := []index.Loc{placeOf(t, m, p, 2, 0)}
		put(t, m, p.Prefix(40))
		if both {
			torn = append(torn, placeOf(t, m, p.Prefix(40), 2, 0))
		}
		image := copyStore(t, dir)
		for _, l := range torn {
			zeroRecord(t, image, l, 4096)
		}
		cutPower(t, image, lost)
		s = open(t, image, options())
		m = model(t, s, d)
		expect(t, m, p, 40)
		soundly(t, s)
		if err := s.liveDoomed(); err != nil {
			t.Error(err)
		}
		if _, err := m.Delete(ctx, p.Prefix(33)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Sync(ctx), s.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(image, firstSegment))
		if err != nil {
			t.Fatal(err)
		}
		if rest := b[first.Offset:][:first.Length]; slices.ContainsFunc(rest, func(x byte) bool { return x != 0 }) {
			t.Errorf("case %d: after Delete and Sync the first copy is still in the file, at %d", i, first.Offset)
		}
		if err := os.Remove(filepath.Join(image, indexName)); err != nil {
			t.Fatal(err)
		}
		expect(t, model(t, open(t, image, options()), d), p, 32)
	}
}
