package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

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
		if n, err := s.eng.evictBlocks(1); err != nil || n != 1 {
			t.Fatal(name, n, err)
		}
		m := model(t, s, plain())
		if n, _ := restore(t, m, first); n != 16 {
			t.Errorf("%s: what has a priority was evicted before what has none", name)
		}
	}
}
