package db

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A rebuild cannot read the block that took the place of a tail: the tail is back. It is deleted, and a process ends before its bytes
// are destroyed. It does not come back.
func TestTailOfUnreadableIsDeleted(t *testing.T) {
	for _, lost := range []bool{false, true} {
		other, p := kv.Tokens(tokens(7, 32)...), kv.Tokens(tokens(1, 64)...)
		image := tailOfUnreadable(t, other, p)
		s := open(t, image, options())
		m := model(t, s, plain())
		expect(t, m, p, 40)
		reader, err := m.Match(ctx, other, MatchOptions{}) // keeps what is deleted
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Delete(ctx, p.Prefix(33)); err != nil || got.Blocks != 1 {
			t.Fatal(got, err)
		}
		expect(t, m, p, 32)
		again := copyStore(t, image)
		reader.Close()
		if lost {
			dropIndex(t, again)
		}
		s = open(t, again, options())
		if got, _ := restore(t, model(t, s, plain()), p); got != 32 {
			t.Errorf("index lost %v: %d tokens, expected 32: what was deleted is back", lost, got)
		}
	}
}

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

// A rebuild cannot read the block that took the place of a tail, which is put again then, and a power cut takes that.
func TestTailOfUnreadableIsSupersededAgain(t *testing.T) {
	p := kv.Tokens(tokens(1, 64)...)
	image := tailOfUnreadable(t, kv.Tokens(tokens(7, 32)...), p)
	s := open(t, image, options())
	m := model(t, s, plain())
	expect(t, m, p, 40)
	put(t, m, p.Prefix(48))
	expect(t, m, p, 48)
	again := placeOf(t, m, p.Prefix(48), 2, 0)
	image = copyStore(t, image)
	zeroRecord(t, image, again, 4096)
	cutPower(t, image, false)
	s = open(t, image, options())
	if got, why := restore(t, model(t, s, plain()), p); got != 40 {
		t.Errorf("%d tokens (%v), expected 40", got, why)
	}
}

// As TestTailOfUnreadableIsDeleted, where the tail that came back is synced, and moved before it is deleted.
func TestTailOfUnreadableIsMovedAndDeleted(t *testing.T) {
	for i := range 2 {
		other, p := kv.Tokens(tokens(7, 32)...), kv.Tokens(tokens(1, 64)...)
		image := tailOfUnreadable(t, other, p)
		s := open(t, image, options())
		m := model(t, s, plain())
		expect(t, m, p, 40)
		reader, err := m.Match(ctx, other, MatchOptions{}) // keeps what is deleted
		if err != nil {
			t.Fatal(err)
		}
		tail := keyAt(m, p.Prefix(40), 2)
		if i > 0 {
			moveAll(t, s, func(x index.Entry) bool { return x.Key == tail })
		}
		if err := s.Sync(ctx); err != nil && !errors.As(err, new(*PendingError)) {
			t.Fatal(err)
		}
		if _, err := m.Delete(ctx, p.Prefix(33)); err != nil {
			t.Fatal(err)
		}
		again := copyStore(t, image)
		reader.Close()
		s = open(t, again, options())
		if got, _ := restore(t, model(t, s, plain()), p); got != 32 {
			t.Errorf("moved %d: %d tokens, expected 32: what was deleted is back", i, got)
		}
	}
}

// tailOfUnreadable is a store without an index that has other, 40 tokens of p as of a checkpoint, and a block of p that takes the place of
// their last ones and that a scan cannot read.
func tailOfUnreadable(t *testing.T, other, p kv.Prompt) (image string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	put(t, m, other)
	put(t, m, p.Prefix(40))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	put(t, m, p.Prefix(48))
	x := placeOf(t, m, p.Prefix(48), 2, 0)
	image = copyStore(t, dir)
	zeroRecord(t, image, x, 256)
	dropIndex(t, image)
	return image
}
