package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// spoilFirst damages the tokens of a prompt's first block, and has the store find that.
func spoilFirst(t *testing.T, s *Store, m *Model, p kv.Prompt) index.Entry {
	t.Helper()
	v := s.eng.view()
	x, ok, err := v.Get(s.eng.hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p).Key(0), 0)
	v.Release()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	spoilTokens(t, s, x)
	expect(t, m, p, 0)
	return x
}

// A large block whose tokens cannot be read any more makes way with all that hangs below it, which nobody can reach: else the
// prompts that begin with it would be misses for ever.
func TestUnreadableLargeBlockMakesWay(t *testing.T) {
	for _, name := range []string{"put", "extend", "after a reopen"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, options())
			d := broad()
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 300)...)
			other := kv.Tokens(concat(p.Tokens[:256], tokens(2, 128))...)
			put(t, m, p)
			put(t, m, other)
			spoilFirst(t, s, m, p)
			switch name {
			case "put":
				put(t, m, p)
			case "extend":
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				if _, err := x.Extend(ctx, p, filled(d, &p, 0, 300), PutOptions{}); err != nil {
					t.Fatal(err)
				}
			default:
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, options())
				m = model(t, s, d)
				put(t, m, p)
			}
			expect(t, m, p, 300)
			expect(t, m, other, 256)
			put(t, m, other)
			expect(t, m, other, 384)
			if _, err := s.Verify(ctx, VerifyOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What a ref or a lease rests on stays all the same.
func TestUnreadableLargeBlockAboveWhatIsNeeded(t *testing.T) {
	for _, name := range []string{"ref", "lease"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			d := broad()
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 300)...)
			put(t, m, p)
			release := func() error { return s.DeleteRef(ctx, "named") }
			if name == "ref" {
				if err := m.SetRef(ctx, "named", p, RefOptions{}); err != nil {
					t.Fatal(err)
				}
			} else {
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				release = x.Close
			}
			spoilFirst(t, s, m, p)
			var missing *NotStoredError
			if _, err := m.Put(ctx, p, filled(d, &p, 0, 300), PutOptions{}); !errors.As(err, &missing) {
				t.Errorf("put: %v", err)
			}
			if err := release(); err != nil {
				t.Fatal(err)
			}
			put(t, m, p)
			expect(t, m, p, 300)
		})
	}
}
