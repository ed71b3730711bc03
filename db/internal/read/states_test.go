package read_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// States of one group are valid at one position, or they are not stored.
func TestStatesAtTwoPositions(t *testing.T) {
	d := crashtest.Opaque()
	d.Tensors = append(d.Tensors, d.Tensors[0])
	_, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	for _, first := range [][2]int{{0, 48}, {48, 0}, {16, 48}} {
		rows := storetest.Filled(d, &p, 0, 48)
		for i := range rows {
			rows[i].First = first[i]
		}
		if _, err := m.Put(t.Context(), p, rows, db.PutOptions{}); !errors.Is(err, kv.ErrRows) {
			t.Errorf("states at the positions %v: %v", first, err)
		}
	}
	storetest.Expect(t, m, p, 0)
}

// statesAt lists the positions at which a prompt can be restored, each by a restore.
func statesAt(t *testing.T, m *db.Model, p kv.Prompt) (at []int) {
	t.Helper()
	for n := len(p.Tokens); n > 0; n-- {
		if got, _ := storetest.Restore(t, m, p.Prefix(n)); got == n {
			at = append(at, n)
		}
	}
	slices.Reverse(at)
	return at
}

// Of the states on the way of a prompt the first and the last ones stay, in the running store, in one that was opened again, and in one
// whose index was built anew; every prefix that is still matched is right.
func TestKeepStates(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Opaque(), crashtest.Hybrid()} {
		s, m := storetest.Fresh(t, storetest.Options(), d)
		dir := s.Dir()
		p := kv.Tokens(crashtest.Tokens(1, 200)...)
		var put []int
		check := func(when string, m *db.Model, want []int) {
			t.Helper()
			if got := statesAt(t, m, p); !slices.Equal(got, want) {
				t.Errorf("%s, %s: states at %v, expected %v", d.Name, when, got, want)
			}
		}
		want := []int(nil)
		for _, n := range []int{20, 32, 40, 45, 64, 100, 101, 130, 160, 199} {
			storetest.PutState(t, m, p.Prefix(n), 4)
			put = append(put, n)
			if want = put; len(put) > 4 {
				want = append([]int{20}, put[len(put)-3:]...)
			}
			check("put", m, want)
		}
		storetest.PutState(t, m, p.Prefix(199), 4) // again: nothing to give up
		check("put again", m, want)
		c := storetest.Must(s.Stats())(t)
		if c.Blocks > 16 { // 13 of the prompt, and what ends at the states
			t.Errorf("%s: %d blocks: the tails of states that went are still there", d.Name, c.Blocks)
		}
		killed := t.TempDir() // as a process leaves it that ends here
		storetest.OK(t, os.CopyFS(killed, os.DirFS(dir)))
		check("killed", storetest.Model(t, storetest.Open(t, killed, storetest.Options()), d), want)
		storetest.OK(t, s.Close())
		s = storetest.Open(t, dir, storetest.Options())
		check("opened again", storetest.Model(t, s, d), want)
		storetest.OK(t, s.Close())
		storetest.OK(t, os.Remove(filepath.Join(dir, "index.db")))
		s = storetest.Open(t, dir, storetest.Options())
		check("rebuilt", storetest.Model(t, s, d), want)
	}
}

// States that others go on from stay: below a scope's start, under a ref, and where prompts part.
func TestKeepStatesOfOthers(t *testing.T) {
	const doc = 100
	base := crashtest.Tokens(1, 200)
	with := func(seed int) kv.Prompt {
		return kv.Prompt{Tokens: crashtest.Concat(base[:doc], crashtest.Tokens(seed, 100))}
	}
	turns := func(t *testing.T, m *db.Model, p kv.Prompt) {
		for n := 110; n <= 200; n += 15 {
			storetest.PutState(t, m, p.Prefix(n), 3)
		}
	}
	for name, x := range map[string]func(t *testing.T, s *db.Store, m *db.Model) kv.Prompt{
		"nobody's": func(t *testing.T, s *db.Store, m *db.Model) kv.Prompt { return with(2) },
		"scope": func(t *testing.T, s *db.Store, m *db.Model) kv.Prompt {
			p := with(2)
			p.Scope, p.ScopeStart = "alice", doc
			return p
		},
		"ref": func(t *testing.T, s *db.Store, m *db.Model) kv.Prompt {
			storetest.OK(t, m.SetRef(t.Context(), "doc", kv.Tokens(base[:doc]...), db.RefOptions{}))
			return with(2)
		},
		"another branch": func(t *testing.T, s *db.Store, m *db.Model) kv.Prompt {
			storetest.PutState(t, m, with(3), 0)
			return with(2)
		},
	} {
		for _, at := range []int{doc, 96} { // within a block, and at its end
			s, m := storetest.Fresh(t, storetest.Options(), crashtest.Hybrid())
			storetest.PutState(t, m, kv.Tokens(base[:30]...), 0)
			storetest.PutState(t, m, kv.Tokens(base[:at]...), 0)
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
	for _, d := range []kv.Descriptor{crashtest.Opaque(), crashtest.Hybrid()} {
		m := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
		p := kv.Tokens(crashtest.Tokens(1, 200)...)
		var matches []*db.Match
		for _, n := range []int{20, 32, 45} {
			storetest.PutState(t, m, p.Prefix(n), 0)
			x := storetest.Match(t, m, p.Prefix(n))
			defer x.Close()
			matches = append(matches, x)
		}
		for _, n := range []int{64, 100, 130, 160} {
			storetest.PutState(t, m, p.Prefix(n), 2)
		}
		for _, x := range matches {
			rows := storetest.Empty(d, len(p.Tokens))
			if got, err := x.Restore(t.Context(), rows); err != nil || got.Tokens != x.Tokens() || got.Tokens != len(x.Prompt().Tokens) {
				t.Errorf("%s: of %d tokens that were matched, %+v, %v", d.Name, len(x.Prompt().Tokens), got, err)
			} else {
				storetest.CheckRows(t, d, &p, rows, got.Tokens)
			}
			x.Close()
		}
		storetest.PutState(t, m, p.Prefix(199), 2)
		if got, want := statesAt(t, m, p), []int{20, 199}; !slices.Equal(got, want) {
			t.Errorf("%s: states at %v, expected %v", d.Name, got, want)
		}
	}
}

// A state in which scopes begin stays, also when a prompt without a scope goes on from there.
func TestKeepStatesBelowScopes(t *testing.T) {
	base := crashtest.Tokens(1, 100)
	for _, d := range []kv.Descriptor{crashtest.Opaque(), crashtest.Hybrid()} {
		for _, at := range []int{40, 48} { // within a block, and at its end
			m := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
			in := func(scope string, seed int) kv.Prompt {
				return kv.Prompt{Tokens: crashtest.Concat(base[:at], crashtest.Tokens(seed, 60)), Scope: scope, ScopeStart: at}
			}
			storetest.PutState(t, m, kv.Tokens(base[:20]...), 0)
			storetest.PutState(t, m, kv.Tokens(base[:at]...), 0)
			storetest.PutState(t, m, in("alice", 5), 0)
			for _, n := range []int{60, 80, 100} {
				storetest.PutState(t, m, kv.Tokens(base[:n]...), 2)
			}
			if n, why := storetest.Restore(t, m, in("bob", 6)); n != at {
				t.Errorf("%s: %d tokens restored, expected %d: %v", d.Name, n, at, why)
			}
		}
	}
}

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
