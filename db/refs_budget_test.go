package db

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Refs are in the log, in the head of every log file and in the index: the budget holds for them too.
func TestBudgetHoldsWithRefs(t *testing.T) {
	for _, c := range []struct {
		name  string
		names int // refs that there are in the end
		sets  int
	}{{"one ref, set often", 1, 3000}, {"many refs", 120, 120}} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Budget, o.SegmentBytes = 8<<20, 256<<10
			o.HighWater, o.LowWater = 1, 1
			dir := t.TempDir()
			s := open(t, dir, o)
			m := model(t, s, plain())
			fill := func(from, n int) {
				for i := range n {
					put(t, m, kv.Prompt{Tokens: tokens(from+i, 640)})
				}
			}
			most := int64(0)
			check := func(what string) {
				total, _, parts := occupied(t, dir)
				if total > most && total > o.Budget {
					t.Errorf("%s: %d bytes are occupied of a budget of %d: %v", what, total, o.Budget, parts)
				}
				most = max(most, total)
			}
			p := kv.Prompt{Tokens: tokens(1, 64)}
			put(t, m, p)
			if err := m.SetRef(ctx, "keep", p, RefOptions{Pinned: true}); err != nil {
				t.Fatal(err)
			}
			fill(10, 24)
			check("filled")
			for i := range c.sets {
				if err := m.SetRef(ctx, fmt.Sprint("ref ", i%c.names), p, RefOptions{Pinned: true, Meta: make([]byte, MaxRefMeta)}); err != nil {
					t.Fatal(err)
				}
				if i%500 == 0 {
					check(fmt.Sprint("ref ", i))
				}
			}
			check("refs are set")
			fill(500, 6) // makes room for what the next checkpoint writes
			for i := range 3 {
				if err := s.Checkpoint(ctx); err != nil {
					t.Fatal(err)
				}
				check("checkpoint")
				fill(1000*i+1000, 6)
				check("filled again")
			}
			t.Logf("at most %d bytes", most)
		})
	}
}
