package db

import (
	"errors"
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

// A ref makes the room that it takes: in a full store blocks go for it, and where none may go it is refused.
func TestRefsMakeRoom(t *testing.T) {
	o := options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	for i := range 24 {
		put(t, m, kv.Prompt{Tokens: tokens(10+i, 640)})
	}
	keep := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, keep)
	before := s.eng.Counts().Blocks
	refused := false
	for i := 0; i < 1500 && !refused; i++ {
		err := m.SetRef(ctx, fmt.Sprint("ref ", i), keep, RefOptions{Pinned: true, Meta: make([]byte, MaxRefMeta)})
		if refused = errors.Is(err, ErrNoSpace); err != nil && !refused {
			t.Fatal(i, err)
		}
		if i%50 == 0 {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if total, _, parts := occupied(t, dir); total > o.Budget {
			t.Fatalf("%d refs: %d bytes are occupied of a budget of %d: %v", i, total, o.Budget, parts)
		}
	}
	if n := s.eng.Counts().Blocks; n >= before {
		t.Errorf("%d blocks of %d stay", n, before)
	}
	if !refused {
		t.Error("refs of 6 MB with their copies fit into 8 MB")
	}
	expect(t, m, keep, 64)
	if err := s.DeleteRef(ctx, "ref 0"); err != nil {
		t.Error(err)
	}
}

// After a kill, what has a higher priority still goes later.
func TestPriorityAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	first, second := kv.Prompt{Tokens: tokens(1, 16)}, kv.Prompt{Tokens: tokens(2, 16)}
	put(t, m, first)
	put(t, m, second)
	if err := m.SetRef(ctx, "second", second, RefOptions{Priority: 9}); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRef(ctx, "second"); err != nil {
		t.Fatal(err)
	}
	if err := m.SetRef(ctx, "first", first, RefOptions{Priority: 9}); err != nil {
		t.Fatal(err)
	}
	again := open(t, copyStore(t, dir), options())
	for name, s := range map[string]*Store{"after a kill": again, "still open": s} {
		if n, err := s.eng.Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatal(name, n, err)
		}
		m := model(t, s, plain())
		if n, _ := restore(t, m, first); n != 16 {
			t.Errorf("%s: what has a priority was evicted before what has none", name)
		}
	}
}
