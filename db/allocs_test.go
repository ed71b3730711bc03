package db

import (
	"testing"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// A match costs its caller two allocations at most: the Match, and nothing or one more.
func TestMatchAllocations(t *testing.T) {
	if raceDetector || lock.Checked {
		t.Skip("SKIPPED: the race detector, and the check of the locks' order, allocate themselves")
	}
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 1024)}
	put(t, m, p)
	for _, checkpointed := range []bool{false, true} {
		if checkpointed {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for name, p := range map[string]kv.Prompt{
			"hit": p, "to the token": {Tokens: append(tokens(1, 1000), 7, 8, 9)}, "miss": {Tokens: tokens(2, 1024)},
		} {
			n := testing.AllocsPerRun(200, func() {
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
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
	if raceDetector || lock.Checked {
		t.Skip("SKIPPED: the race detector, and the check of the locks' order, allocate themselves")
	}
	o := options()
	o.Codec = 0
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 4096)}
	put(t, m, p)
	rows := empty(plain(), 4096)
	cost := func(n int) float64 {
		x, err := m.Match(ctx, p, MatchOptions{Limit: n})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		return testing.AllocsPerRun(20, func() {
			if got, err := x.Restore(ctx, rows); err != nil || got.Tokens != n {
				t.Fatal(got, err)
			}
		})
	}
	once, twice := cost(2048), cost(4096)
	if twice > once+8 { // 128 more blocks; the pools of a busy machine may be emptied once
		t.Errorf("%v allocations for 2048 tokens, %v for 4096", once, twice)
	}
}
