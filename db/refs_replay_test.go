package db

import (
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// What refs say of the order of eviction holds after a kill, too: the log has them, and the ranks of the blocks are in an index
// that was written before.
func TestRefsRankAfterAKill(t *testing.T) {
	p, other := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 64)}
	blocks := func(t *testing.T, s *Store) int64 {
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return st.Blocks
	}
	set := func(t *testing.T, m *Model, p kv.Prompt, o RefOptions) {
		t.Helper()
		if err := m.SetRef(ctx, "ref", p, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name          string
		before, after func(t *testing.T, s *Store, m *Model)
		want          int64 // blocks that stay when the store is shrunk to nothing
	}{
		{"a pin that was taken off", func(t *testing.T, s *Store, m *Model) { set(t, m, p, RefOptions{Pinned: true}) },
			func(t *testing.T, s *Store, m *Model) {
				if err := s.DeleteRef(ctx, "ref"); err != nil {
					t.Fatal(err)
				}
			}, 0},
		{"a pin that moved", func(t *testing.T, s *Store, m *Model) { set(t, m, p, RefOptions{Pinned: true}) },
			func(t *testing.T, s *Store, m *Model) { set(t, m, other, RefOptions{Pinned: true}) }, 4},
		{"a pin that is over", func(t *testing.T, s *Store, m *Model) {
			set(t, m, p, RefOptions{Pinned: true, TTL: time.Nanosecond})
		}, func(t *testing.T, s *Store, m *Model) {
			if err := s.eng.expireRefs(); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"a pin that is no pin any more", func(t *testing.T, s *Store, m *Model) { set(t, m, p, RefOptions{Pinned: true}) },
			func(t *testing.T, s *Store, m *Model) { set(t, m, p, RefOptions{Priority: 3}) }, 0},
		{"a leaf that went below what was pinned", func(t *testing.T, s *Store, m *Model) {
			set(t, m, p, RefOptions{Pinned: true})
		}, func(t *testing.T, s *Store, m *Model) {
			set(t, m, kv.Prompt{Tokens: p.Tokens[:32]}, RefOptions{})
			if _, err := m.Delete(ctx, p); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"a pin that is new", func(*testing.T, *Store, *Model) {},
			func(t *testing.T, s *Store, m *Model) { set(t, m, p, RefOptions{Pinned: true}) }, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, options())
			m := model(t, s, plain())
			put(t, m, p)
			put(t, m, other)
			c.before(t, s, m)
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			c.after(t, s, m)
			again := open(t, copyStore(t, dir), options())
			for name, s := range map[string]*Store{"after a kill": again, "still open": s} {
				if _, err := s.Shrink(ctx, 0); err != nil {
					t.Fatal(name, err)
				}
				if n := blocks(t, s); n != c.want {
					t.Errorf("%s: %d blocks stay in a store that is shrunk to nothing, expected %d", name, n, c.want)
				}
			}
		})
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
		if n, err := s.eng.evictBlocks(1); err != nil || n != 1 {
			t.Fatal(name, n, err)
		}
		m := model(t, s, plain())
		if n, _ := restore(t, m, first); n != 16 {
			t.Errorf("%s: what has a priority was evicted before what has none", name)
		}
	}
}
