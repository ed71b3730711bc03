package recovery_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A damaged block that was put again, and its child, which was moved twice since the last checkpoint; a power cut takes all three copies.
// The child is where it was at the checkpoint, and the damaged block stays below it, as after TestReplacedBetweenCheckpoints.
func TestDamagedParentOfTwiceMoved(t *testing.T) {
	for moves := range 3 {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p := kv.Tokens(crashtest.Tokens(1, 48)...)
		storetest.Put(t, m, p)
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 1, 0), 4096)
		storetest.Expect(t, m, p, 16)
		storetest.Put(t, m, p)
		storetest.Expect(t, m, p, 48)
		lost := []index.Loc{storetest.Place(t, s, m, p, 1, 0)}
		child := storetest.Key(t, s, m, p, 2)
		for range moves {
			storetest.MoveAll(t, s, func(x index.Entry) bool { return x.Key == child })
			lost = append(lost, storetest.Place(t, s, m, p, 2, 0))
		}
		s = storetest.Open(t, afterCut(t, s, false, lost...), storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, p, 16)
		storetest.Put(t, m, p.Prefix(32))
		if got, why := storetest.Restore(t, m, p); got != 48 {
			t.Errorf("child moved %d times: %d tokens (%v), expected 48", moves, got, why)
		}
	}
}

// A block is moved, gets a child, is found damaged and put again, all in one log: after a reboot the child is there.
func TestChildOfMovedAndReplaced(t *testing.T) {
	for i := range 4 {
		begun, again := i&1 > 0, i&2 > 0
		o := storetest.Options()
		o.Durability = db.Power
		s, m := storetest.Fresh(t, o, crashtest.Plain())
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		storetest.Put(t, m, p.Prefix(32))
		if begun {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		sync := func() { storetest.OK(t, s.Sync(t.Context())) }
		for range 1 + i/2 {
			storetest.MoveAll(t, s, func(index.Entry) bool { return true })
			sync() // destroys the old places
		}
		storetest.Put(t, m, p)
		storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 1, 0), 4096)
		storetest.Expect(t, m, p, 16)
		storetest.Put(t, m, p.Prefix(32))
		storetest.Expect(t, m, p, 64)
		sync()
		s = storetest.Open(t, afterCut(t, s, false), o)
		t.Logf("checkpoint %v, moved twice %v", begun, again)
		storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
		storetest.Sound(t, s)
	}
}
