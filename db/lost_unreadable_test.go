package db

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A rebuild cannot read a block; its prefix is deleted, and Sync says that nothing is left of it.
func TestUnreadableGoesWithItsPrompt(t *testing.T) {
	for i := range 8 {
		rebuild, block, zero := i&1 > 0, 2+i&2/2, i&4 > 0
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p.Prefix(32))
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, m, p)
		needle := truth(plain(), &p, 0, 16*block+8)
		x := placeOf(t, m, p, block, 0)
		image := copyStore(t, dir)
		path := (&engine{dir: image}).segmentPath(x.Segment)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		keep := bytes.Clone(b)
		b[x.Offset+20] ^= 0x40 // as the disk gives it just now
		if zero {
			clear(b[x.Offset:][:512])
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if rebuild {
			dropIndex(t, image)
		}
		s = open(t, image, options())
		m = model(t, s, plain())
		restore(t, m, p)
		if _, err := m.Delete(ctx, p.Prefix(16)); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if b, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, needle) {
			t.Errorf("rebuild %v, block %d, zeroed %v: after Delete and Sync a row is in %s", rebuild, block, zero, filepath.Base(path))
		}
		again := copyStore(t, image)
		path = (&engine{dir: again}).segmentPath(x.Segment)
		if b, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, needle) { // the disk reads it again
			copy(b[x.Offset:][:512], keep[x.Offset:])
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s = open(t, again, options())
		n := 0
		for b := range s.Blocks(ctx) {
			n++
			t.Log("block ", b.First, b.Tokens)
		}
		if n > 0 {
			t.Errorf("rebuild %v, block %d, zeroed %v: %d blocks are back", rebuild, block, zero, n)
		}
	}
}
