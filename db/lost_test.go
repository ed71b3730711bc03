package db

import (
	"testing"

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
