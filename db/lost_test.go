package db

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A damaged block that was put again, and its child, which was moved twice since the last checkpoint; a power cut takes all three copies.
// The child is where it was at the checkpoint, and the damaged block stays below it, as after TestReplacedBetweenCheckpoints.
func TestDamagedParentOfTwiceMoved(t *testing.T) {
	for moves := range 3 {
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 48)...)
		put(t, m, p)
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		zeroRecord(t, dir, placeOf(t, m, p, 1, 0), 4096)
		expect(t, m, p, 16)
		put(t, m, p)
		expect(t, m, p, 48)
		lost := []index.Loc{placeOf(t, m, p, 1, 0)}
		child := keyAt(m, p, 2)
		for range moves {
			moveAll(t, s, func(x index.Entry) bool { return x.Key == child })
			lost = append(lost, placeOf(t, m, p, 2, 0))
		}
		image := copyStore(t, dir)
		for _, l := range lost {
			zeroRecord(t, image, l, 4096)
		}
		cutPower(t, image, false)
		s = open(t, image, options())
		m = model(t, s, plain())
		expect(t, m, p, 16)
		put(t, m, p.Prefix(32))
		if got, why := restore(t, m, p); got != 48 {
			t.Errorf("child moved %d times: %d tokens (%v), expected 48", moves, got, why)
		}
	}
}

// A block is moved, gets a child, is found damaged and put again, all in one log: after a reboot the child is there.
func TestChildOfMovedAndReplaced(t *testing.T) {
	for i := range 4 {
		begun, again := i&1 > 0, i&2 > 0
		o := options()
		o.Durability = Power
		dir := t.TempDir()
		s := open(t, dir, o)
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p.Prefix(32))
		if begun {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		sync := func() {
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for range 1 + i/2 {
			moveAll(t, s, func(index.Entry) bool { return true })
			sync() // destroys the old places
		}
		put(t, m, p)
		zeroRecord(t, dir, placeOf(t, m, p, 1, 0), 4096)
		expect(t, m, p, 16)
		put(t, m, p.Prefix(32))
		expect(t, m, p, 64)
		sync()
		image := copyStore(t, dir)
		cutPower(t, image, false)
		s = open(t, image, o)
		t.Logf("checkpoint %v, moved twice %v", begun, again)
		expect(t, model(t, s, plain()), p, 64)
		soundly(t, s)
	}
}

// A tail and a block that was put again, whose window rows are of an earlier frame; a power cut takes these: the tail is still there.
func TestWindowRowsOfAnEarlierFrame(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := windowed(40)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p.Prefix(40))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	rows := filled(d, &p, 0, 48)
	for i, te := range d.Tensors {
		if te.Group > 0 {
			rows[i] = kv.TensorRows{}
		}
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 40)
	put(t, m, p)
	expect(t, m, p, 48)
	expect(t, m, p.Prefix(40), 40)
	zeroRecord(t, dir, placeOf(t, m, p, 2, 0), 4096)
	restore(t, m, p)
	put(t, m, p)
	expect(t, m, p, 48)
	window := placeOf(t, m, p, 2, 1)
	image := copyStore(t, dir)
	zeroRecord(t, image, window, 4096)
	cutPower(t, image, false)
	s = open(t, image, options())
	if got, why := restore(t, model(t, s, d), p); got != 40 {
		t.Errorf("%d tokens (%v), expected 40", got, why)
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
		path := folder.SegmentPath(image, x.Segment)
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
		path = folder.SegmentPath(again, x.Segment)
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
