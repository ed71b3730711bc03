package db_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 8<<20, 256<<10
			o.HighWater, o.LowWater = 1, 1
			dir := t.TempDir()
			s := storetest.Open(t, dir, o)
			m := storetest.Model(t, s, crashtest.Plain())
			fill := func(from, n int) {
				for i := range n {
					storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(from+i, 640)})
				}
			}
			most := int64(0)
			check := func(what string) {
				total, _, parts := storetest.Occupied(t, dir)
				if total > most && total > o.Budget {
					t.Errorf("%s: %d bytes are occupied of a budget of %d: %v", what, total, o.Budget, parts)
				}
				most = max(most, total)
			}
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
			storetest.Put(t, m, p)
			storetest.OK(t, m.SetRef(t.Context(), "keep", p, db.RefOptions{Pinned: true}))
			fill(10, 24)
			check("filled")
			for i := range c.sets {
				storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint("ref ", i%c.names), p, db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)}))
				if i%500 == 0 {
					check(fmt.Sprint("ref ", i))
				}
			}
			check("refs are set")
			fill(500, 6) // makes room for what the next checkpoint writes
			for i := range 3 {
				storetest.OK(t, s.Checkpoint(t.Context()))
				check("checkpoint")
				fill(1000*i+1000, 6)
				check("filled again")
			}
			t.Logf("at most %d bytes", most)
		})
	}
}

// A ref makes the room that it takes: in a full store blocks go for it, and where none may go it is refused.
func TestRefsMakeRoom(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 24 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(10+i, 640)})
	}
	keep := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, keep)
	before := storetest.Stats(t, s).Blocks
	refused := false
	for i := 0; i < 1500 && !refused; i++ {
		err := m.SetRef(t.Context(), fmt.Sprint("ref ", i), keep, db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)})
		if refused = errors.Is(err, db.ErrNoSpace); err != nil && !refused {
			t.Fatal(i, err)
		}
		if i%50 == 0 {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		if total, _, parts := storetest.Occupied(t, dir); total > o.Budget {
			t.Fatalf("%d refs: %d bytes are occupied of a budget of %d: %v", i, total, o.Budget, parts)
		}
	}
	if n := storetest.Stats(t, s).Blocks; n >= before {
		t.Errorf("%d blocks of %d stay", n, before)
	}
	if !refused {
		t.Error("refs of 6 MB with their copies fit into 8 MB")
	}
	storetest.Expect(t, m, keep, 64)
	if err := s.DeleteRef(t.Context(), "ref 0"); err != nil {
		t.Error(err)
	}
}

// After a kill, what has a higher priority still goes later.
func TestPriorityAfterAKill(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	o.MaxBlocks, o.HighWater, o.LowWater = 2, 1, 1 // only a put evicts
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	first, second := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}, kv.Prompt{Tokens: crashtest.Tokens(2, 16)}
	storetest.Put(t, m, first)
	storetest.Put(t, m, second)
	storetest.OK(t, m.SetRef(t.Context(), "second", second, db.RefOptions{Priority: 9}))
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.OK(t, s.DeleteRef(t.Context(), "second"))
	storetest.OK(t, m.SetRef(t.Context(), "first", first, db.RefOptions{Priority: 9}))
	again := storetest.Open(t, storetest.Copy(t, dir), o)
	for name, s := range map[string]*db.Store{"after a kill": again, "still open": s} {
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 16)}) // in the place of one of them
		if n, _ := storetest.Restore(t, m, first); n != 16 {
			t.Errorf("%s: what has a priority was evicted before what has none", name)
		}
	}
}
