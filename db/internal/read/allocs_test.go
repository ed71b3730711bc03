package read_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// A match costs its caller two allocations at most: the Match, and nothing or one more.
func TestMatchAllocations(t *testing.T) {
	if storetest.Race || lock.Checked {
		t.Skip("SKIPPED: the race detector, and the check of the locks' order, allocate themselves")
	}
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 1024)}
	storetest.Put(t, m, p)
	for _, checkpointed := range []bool{false, true} {
		if checkpointed {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		for name, p := range map[string]kv.Prompt{
			"hit": p, "to the token": {Tokens: append(crashtest.Tokens(1, 1000), 7, 8, 9)}, "miss": {Tokens: crashtest.Tokens(2, 1024)},
		} {
			n := testing.AllocsPerRun(200, func() {
				x := storetest.Match(t, m, p)
				x.Close()
			})
			if n > 2 {
				t.Errorf("%s, checkpointed %t: %v allocations", name, checkpointed, n)
			}
		}
	}
}

// A restored block costs no allocation: twice the blocks cost as many as once.
func TestRestoreAllocations(t *testing.T) {
	if storetest.Race || lock.Checked {
		t.Skip("SKIPPED: the race detector, and the check of the locks' order, allocate themselves")
	}
	o := storetest.Options()
	o.Codec = 0
	_, m := storetest.Fresh(t, o, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 4096)}
	storetest.Put(t, m, p)
	rows := storetest.Empty(crashtest.Plain(), 4096)
	cost := func(n int) float64 {
		x := storetest.Must(m.Match(t.Context(), p, db.MatchOptions{Limit: n}))(t)
		defer x.Close()
		return testing.AllocsPerRun(20, func() {
			if got, err := x.Restore(t.Context(), rows); err != nil || got.Tokens != n {
				t.Fatal(got, err)
			}
		})
	}
	once, twice := cost(2048), cost(4096)
	if twice > once+8 { // 128 more blocks; the pools of a busy machine may be emptied once
		t.Errorf("%v allocations for 2048 tokens, %v for 4096", once, twice)
	}
}
