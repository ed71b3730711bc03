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

// A damaged block is put again; a checkpoint writes its log head and no more; a power cut takes what was put. What hangs below was synced.
func TestHalfCheckpointForgetsNoDamage(t *testing.T) {
	for _, half := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p)
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		zeroRecord(t, dir, placeOf(t, m, p, 1, 0), 4096)
		expect(t, m, p, 16)
		put(t, m, p)
		expect(t, m, p, 64)
		again := placeOf(t, m, p, 1, 0)
		if half {
			s.eng.ckptMu.Lock()
			c, err := s.eng.freeze()
			s.eng.begun = c
			s.eng.ckptMu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		image := copyStore(t, dir)
		zeroRecord(t, image, again, 4096)
		cutPower(t, image, false)
		s = open(t, image, options())
		m = model(t, s, plain())
		expect(t, m, p, 16)
		put(t, m, p.Prefix(32))
		if got, why := restore(t, m, p); got != 64 {
			t.Errorf("half a checkpoint %v: %d tokens (%v), expected 64", half, got, why)
		}
	}
}
