package db

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// States of one group are valid at one position, or they are not stored.
func TestStatesAtTwoPositions(t *testing.T) {
	d := opaque()
	d.Tensors = append(d.Tensors, d.Tensors[0])
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	for _, first := range [][2]int{{0, 48}, {48, 0}, {16, 48}} {
		rows := filled(d, &p, 0, 48)
		for i := range rows {
			rows[i].First = first[i]
		}
		if _, err := m.Put(ctx, p, rows, PutOptions{}); !errors.Is(err, kv.ErrRows) {
			t.Errorf("states at the positions %v: %v", first, err)
		}
	}
	expect(t, m, p, 0)
}

// hybrid is a model with rows that can be cut at a token, and a state that cannot.
func hybrid() kv.Descriptor {
	d := plain()
	d.Name, d.StateFormat = "hybrid", "1"
	d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}}
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: 2, Role: kv.RoleState, DType: kv.Bytes, Group: 1})
	return d
}

// putState stores a prompt with the state at its end.
func putState(t *testing.T, m *Model, p kv.Prompt, keep int) {
	t.Helper()
	d := m.Descriptor()
	rows := filled(d, &p, 0, len(p.Tokens))
	for i, tensor := range d.Tensors {
		if d.Groups[tensor.Group].Kind == kv.StateAt {
			rows[i].First = len(p.Tokens)
		}
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{KeepStates: keep}); err != nil {
		t.Fatal(err)
	}
}

// statesAt lists the positions at which a prompt can be restored, each by a restore.
func statesAt(t *testing.T, m *Model, p kv.Prompt) (at []int) {
	t.Helper()
	for n := len(p.Tokens); n > 0; n-- {
		if got, _ := restore(t, m, p.Prefix(n)); got == n {
			at = append(at, n)
		}
	}
	slices.Reverse(at)
	return at
}

// Of the states on the way of a prompt the first and the last ones stay, in the running store, in one that was opened again, and in one
// whose index was built anew; every prefix that is still matched is right.
func TestKeepStates(t *testing.T) {
	for _, d := range []kv.Descriptor{opaque(), hybrid()} {
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, d)
		p := kv.Tokens(tokens(1, 200)...)
		var put []int
		check := func(when string, m *Model, want []int) {
			t.Helper()
			if got := statesAt(t, m, p); !slices.Equal(got, want) {
				t.Errorf("%s, %s: states at %v, expected %v", d.Name, when, got, want)
			}
		}
		want := []int(nil)
		for _, n := range []int{20, 32, 40, 45, 64, 100, 101, 130, 160, 199} {
			putState(t, m, p.Prefix(n), 4)
			put = append(put, n)
			if want = put; len(put) > 4 {
				want = append([]int{20}, put[len(put)-3:]...)
			}
			check("put", m, want)
		}
		putState(t, m, p.Prefix(199), 4) // again: nothing to give up
		check("put again", m, want)
		c, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if c.Blocks > 16 { // 13 of the prompt, and what ends at the states
			t.Errorf("%s: %d blocks: the tails of states that went are still there", d.Name, c.Blocks)
		}
		killed := t.TempDir() // as a process leaves it that ends here
		if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		check("killed", model(t, open(t, killed, options()), d), want)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, options())
		check("opened again", model(t, s, d), want)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, options())
		check("rebuilt", model(t, s, d), want)
	}
}

// States that others go on from stay: below a scope's start, under a ref, and where prompts part.
func TestKeepStatesOfOthers(t *testing.T) {
	const doc = 100
	base := tokens(1, 200)
	with := func(seed int) kv.Prompt { return kv.Prompt{Tokens: concat(base[:doc], tokens(seed, 100))} }
	turns := func(t *testing.T, m *Model, p kv.Prompt) {
		for n := 110; n <= 200; n += 15 {
			putState(t, m, p.Prefix(n), 3)
		}
	}
	for name, x := range map[string]func(t *testing.T, s *Store, m *Model) kv.Prompt{
		"nobody's": func(t *testing.T, s *Store, m *Model) kv.Prompt { return with(2) },
		"scope": func(t *testing.T, s *Store, m *Model) kv.Prompt {
			p := with(2)
			p.Scope, p.ScopeStart = "alice", doc
			return p
		},
		"ref": func(t *testing.T, s *Store, m *Model) kv.Prompt {
			if err := m.SetRef(ctx, "doc", kv.Tokens(base[:doc]...), RefOptions{}); err != nil {
				t.Fatal(err)
			}
			return with(2)
		},
		"another branch": func(t *testing.T, s *Store, m *Model) kv.Prompt {
			putState(t, m, with(3), 0)
			return with(2)
		},
	} {
		for _, at := range []int{doc, 96} { // within a block, and at its end
			s := open(t, t.TempDir(), options())
			m := model(t, s, hybrid())
			putState(t, m, kv.Tokens(base[:30]...), 0)
			putState(t, m, kv.Tokens(base[:at]...), 0)
			if at != doc && name != "another branch" {
				continue
			}
			p := x(t, s, m)
			turns(t, m, p)
			kept := slices.Contains(statesAt(t, m, p), at)
			if kept != (name != "nobody's") {
				t.Errorf("%s: the state at %d is there: %t", name, at, kept)
			}
		}
	}
}

// What an open match rests on stays, and goes with the next put when the match is closed.
func TestKeepStatesUnderMatch(t *testing.T) {
	for _, d := range []kv.Descriptor{opaque(), hybrid()} {
		m := model(t, open(t, t.TempDir(), options()), d)
		p := kv.Tokens(tokens(1, 200)...)
		var matches []*Match
		for _, n := range []int{20, 32, 45} {
			putState(t, m, p.Prefix(n), 0)
			x, err := m.Match(ctx, p.Prefix(n), MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			matches = append(matches, x)
		}
		for _, n := range []int{64, 100, 130, 160} {
			putState(t, m, p.Prefix(n), 2)
		}
		for _, x := range matches {
			rows := empty(d, len(p.Tokens))
			if got, err := x.Restore(ctx, rows); err != nil || got.Tokens != x.Tokens() || got.Tokens != len(x.Prompt().Tokens) {
				t.Errorf("%s: of %d tokens that were matched, %+v, %v", d.Name, len(x.Prompt().Tokens), got, err)
			} else {
				checkRows(t, d, &p, rows, got.Tokens)
			}
			x.Close()
		}
		putState(t, m, p.Prefix(199), 2)
		if got, want := statesAt(t, m, p), []int{20, 199}; !slices.Equal(got, want) {
			t.Errorf("%s: states at %v, expected %v", d.Name, got, want)
		}
	}
}

// A state in which scopes begin stays, also when a prompt without a scope goes on from there.
func TestKeepStatesBelowScopes(t *testing.T) {
	base := tokens(1, 100)
	for _, d := range []kv.Descriptor{opaque(), hybrid()} {
		for _, at := range []int{40, 48} { // within a block, and at its end
			m := model(t, open(t, t.TempDir(), options()), d)
			in := func(scope string, seed int) kv.Prompt {
				return kv.Prompt{Tokens: concat(base[:at], tokens(seed, 60)), Scope: scope, ScopeStart: at}
			}
			putState(t, m, kv.Tokens(base[:20]...), 0)
			putState(t, m, kv.Tokens(base[:at]...), 0)
			putState(t, m, in("alice", 5), 0)
			for _, n := range []int{60, 80, 100} {
				putState(t, m, kv.Tokens(base[:n]...), 2)
			}
			if n, why := restore(t, m, in("bob", 6)); n != at {
				t.Errorf("%s: %d tokens restored, expected %d: %v", d.Name, n, at, why)
			}
		}
	}
}
