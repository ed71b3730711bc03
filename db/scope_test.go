package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A prompt whose scope begins behind its end, or that starts a scope and names none, is refused by everything that takes a prompt: its user's
// data would be everybody's, and DeleteScope would find none of it. The error says both numbers.
func TestScopeThatCannotBeginIsRefused(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	good := kv.Prompt{Tokens: crashtest.Tokens(1, 100), Scope: "alice", ScopeStart: 40}
	storetest.Put(t, m, good)
	x := storetest.Match(t, m, good)
	defer x.Close()
	before := storetest.Stats(t, s).Blocks
	for says, p := range map[string]kv.Prompt{
		"token 105, the prompt has 100 tokens": {Tokens: good.Tokens, Scope: "alice", ScopeStart: 105},
		"token 101, the prompt has 100 tokens": {Tokens: good.Tokens, Scope: "alice", ScopeStart: 101},
		"token 1, the prompt has 0 tokens":     {Scope: "alice", ScopeStart: 1},
		"starts at 40, and Scope is empty":     {Tokens: good.Tokens, ScopeStart: 40},
		"starts at 105, and Scope is empty":    {Tokens: good.Tokens, ScopeStart: 105},
	} {
		rows := storetest.Filled(m.Descriptor(), &good, 0, len(p.Tokens))
		for name, call := range map[string]func() error{
			"Put":      func() error { _, err := m.Put(t.Context(), p, rows, db.PutOptions{}); return err },
			"Extend":   func() error { _, err := x.Extend(t.Context(), p, rows, db.PutOptions{}); return err },
			"Match":    func() error { _, err := m.Match(t.Context(), p, db.MatchOptions{}); return err },
			"NoLookup": func() error { _, err := m.Match(t.Context(), p, db.MatchOptions{NoLookup: true}); return err },
			"NoStore":  func() error { _, err := m.Put(t.Context(), p, rows, db.PutOptions{NoStore: true}); return err },
			"Probe":    func() error { _, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); return err },
			"Prefetch": func() error { _, err := m.Prefetch(t.Context(), p, db.MatchOptions{}); return err },
			"Explain":  func() error { _, err := m.Explain(t.Context(), p, db.MatchOptions{}); return err },
			"Delete":   func() error { _, err := m.Delete(t.Context(), p); return err },
			"SetRef": func() error {
				if len(p.Tokens) == 0 {
					return kv.ErrPrompt // it is too short for a ref
				}
				return m.SetRef(t.Context(), "ref", p, db.RefOptions{})
			},
			"a prefix": func() error {
				_, err := m.Put(t.Context(), p.Prefix(len(p.Tokens)/2), rows, db.PutOptions{})
				return err
			},
		} {
			if name == "a prefix" && len(p.Tokens) == 0 {
				continue
			}
			err := call()
			if !errors.Is(err, kv.ErrPrompt) {
				t.Errorf("%s of a prompt with scope %q at %d, %d tokens: %v", name, p.Scope, p.ScopeStart, len(p.Tokens), err)
			} else if name != "a prefix" && len(p.Tokens) > 0 && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; expected it to say %q", name, err, says)
			}
		}
	}
	if after := storetest.Stats(t, s).Blocks; after != before {
		t.Errorf("%d blocks, and %d before", after, before)
	}
	if refs := storetest.Must(db.Collect(s.Refs()))(t); len(refs) != 0 {
		t.Errorf("refs %+v", refs)
	}
}

// A prompt that is put in pieces, as captures and windows come, is what it is when it is put at once: what lies before ScopeStart is
// everybody's, what follows is its user's, and DeleteScope takes that alone. A ref may name half a system prompt, and stays.
func TestPrefixesThatEndBeforeTheScope(t *testing.T) {
	const shared = 100 // no multiple of a block
	for name, d := range map[string]kv.Descriptor{"rows": crashtest.Plain(), "windows": crashtest.Windowed(24)} {
		t.Run(name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			once := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
			prompt := func(user int) kv.Prompt {
				return kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, shared), crashtest.Tokens(10+user, 80)), Scope: fmt.Sprint("user", user), ScopeStart: shared}
			}
			alice, bob := prompt(1), prompt(2)
			for _, n := range []int{20, 37, 64, 99, 100, 101, 150, 180} {
				q := alice.Prefix(n)
				storetest.Put(t, m, q)
				storetest.Expect(t, m, q, n)
				if n < shared {
					storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint("system ", n), q, db.RefOptions{Pinned: true}))
				}
			}
			storetest.Put(t, once, alice)
			storetest.Expect(t, m, alice, 180)
			storetest.Expect(t, once, alice, 180)
			storetest.Expect(t, m, bob, shared)
			storetest.Expect(t, m, kv.Prompt{Tokens: alice.Tokens}, shared)
			storetest.Put(t, m, bob)

			took := storetest.Must(s.DeleteScope(t.Context(), alice.Scope))(t)
			if took.Blocks == 0 || took.Refs != 0 {
				t.Errorf("deleted %+v", took)
			}
			storetest.Expect(t, m, alice, shared)
			storetest.Expect(t, m, bob, 180)
			if refs := storetest.Must(db.Collect(s.Refs()))(t); len(refs) != 4 || slices.ContainsFunc(refs, func(r db.Ref) bool { return r.Tokens >= shared }) {
				t.Errorf("refs %+v", refs)
			}
			if _, err := m.Delete(t.Context(), alice.Prefix(37)); err != nil { // all of the system prompt behind 37, and what follows
				t.Fatal(err)
			}
			storetest.Expect(t, m, bob, 32) // blocks go as a whole
			storetest.Sound(t, s)
		})
	}
}
