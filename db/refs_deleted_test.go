package db

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Refs go with what they name, whether or not their blocks are left, and then no file says what they said; the refs of others stay.
func TestDeletionsTakeRefs(t *testing.T) {
	own, other := tokens(1, 300), tokens(2, 300)
	shared := tokens(3, 40)
	scoped := func(scope string, own []kv.Token, n int) kv.Prompt {
		return kv.Prompt{Tokens: concat(shared, own)[:n], Scope: scope, ScopeStart: 40}
	}
	prompts := map[string]kv.Prompt{
		"plain":       {Tokens: own},
		"plain early": {Tokens: own[:70]},
		"sibling":     {Tokens: concat(own[:100], other)},
		"alice":       scoped("alice", own, 300),
		"alice early": scoped("alice", own, 100),
		"bob":         scoped("bob", own, 300),
		"system":      {Tokens: shared},
	}
	whole := func(p kv.Prompt) func(*testing.T, *Store, *Model) {
		return func(t *testing.T, s *Store, m *Model) {
			if _, err := m.Delete(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	scope := func(name string) func(*testing.T, *Store, *Model) {
		return func(t *testing.T, s *Store, _ *Model) {
			if _, err := s.DeleteScope(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	deletions := []struct {
		name   string
		delete func(*testing.T, *Store, *Model)
		gone   []string
	}{
		{"the prompt itself", whole(prompts["plain"]), []string{"plain"}},
		{"an earlier turn, inside a block", whole(kv.Prompt{Tokens: own[:75]}), []string{"plain", "sibling"}},
		{"where two part", whole(kv.Prompt{Tokens: own[:104]}), []string{"plain"}},
		{"a few tokens", whole(kv.Prompt{Tokens: own[:3]}), []string{"plain", "plain early", "sibling"}},
		{"in a scope", whole(scoped("alice", own, 120)), []string{"alice"}},
		{"a scope", scope("alice"), []string{"alice", "alice early"}},
		{"what scopes share", whole(kv.Prompt{Tokens: shared[:20]}), []string{"alice", "alice early", "bob", "system"}},
		{"what scopes do not share", whole(kv.Prompt{Tokens: concat(shared, own)[:80]}), nil},
		{"nobody's scope", scope("carol"), nil},
		{"a model", func(t *testing.T, s *Store, m *Model) {
			if err := s.Retire(ctx, m.Fingerprint()); err != nil {
				t.Fatal(err)
			}
		}, []string{"alice", "alice early", "bob", "plain", "plain early", "sibling", "system"}},
		{"a ref", func(t *testing.T, s *Store, _ *Model) {
			if err := s.DeleteRef(ctx, "bob"); err != nil {
				t.Fatal(err)
			}
		}, []string{"bob"}},
	}
	before := map[string]func(t *testing.T, s *Store, m *Model){
		"all stored": func(*testing.T, *Store, *Model) {},
		"leaves evicted": func(t *testing.T, s *Store, _ *Model) {
			if _, err := s.eng.evictBlocks(20); err != nil {
				t.Fatal(err)
			}
		},
		"all evicted": func(t *testing.T, s *Store, _ *Model) {
			if n, err := s.Shrink(ctx, 1); err != nil || s.eng.counts().Blocks > 0 {
				t.Fatal(n, err)
			}
		},
	}
	between := map[string]func(t *testing.T, s *Store, dir string) *Store{
		"at once": func(_ *testing.T, s *Store, _ string) *Store { return s },
		"a checkpoint": func(t *testing.T, s *Store, _ string) *Store {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			return s
		},
		"a kill": func(t *testing.T, s *Store, dir string) *Store {
			crash(s)
			return open(t, dir, options())
		},
		"a close, and no index": func(t *testing.T, s *Store, dir string) *Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
				t.Fatal(err)
			}
			return open(t, dir, options())
		},
	}
	for evicted, evict := range before {
		for then, reopen := range between {
			if testing.Short() && (evicted == "leaves evicted") != (then == "a kill") {
				continue
			}
			for _, c := range deletions {
				t.Run(evicted+", "+c.name+", "+then, func(t *testing.T) {
					dir := t.TempDir()
					s := open(t, dir, options())
					m := model(t, s, plain())
					for name, p := range prompts {
						put(t, m, p)
						for _, version := range []string{"first ", "second "} {
							if err := m.SetRef(ctx, name, p, RefOptions{Meta: []byte(version + refCanary(name))}); err != nil {
								t.Fatal(name, err)
							}
						}
					}
					if err := s.Checkpoint(ctx); err != nil {
						t.Fatal(err)
					}
					evict(t, s, m)
					s = reopen(t, s, dir)
					m = model(t, s, plain())
					c.delete(t, s, m)
					s = reopen(t, s, dir)
					if err := s.Sync(ctx); err != nil {
						t.Fatal(err)
					}
					for name := range prompts {
						gone := slices.Contains(c.gone, name)
						if r, err := s.Ref(name); gone != errors.Is(err, ErrNotFound) || !gone && string(r.Meta) != "second "+refCanary(name) {
							t.Errorf("%q: gone should be %t: %q, %v", name, gone, r.Meta, err)
						}
						if file := fileWith(t, dir, refCanary(name)); gone && file != "" {
							t.Errorf("%s still says what %q did", file, name)
						} else if !gone && file == "" {
							t.Errorf("no file says what %q does", name)
						}
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, dir, options())
					for _, name := range c.gone {
						if _, err := s.Ref(name); !errors.Is(err, ErrNotFound) {
							t.Errorf("%q is back: %v", name, err)
						}
						if file := fileWith(t, dir, refCanary(name)); file != "" {
							t.Errorf("%s says again what %q did", file, name)
						}
					}
				})
			}
		}
	}
}

// refCanary is what nothing but the metadata of that ref has in it.
func refCanary(name string) string { return "what only the ref <" + name + "> says" }

// fileWith returns a file below dir that has text in it.
func fileWith(t *testing.T, dir, text string) (file string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(text)) {
			file = name
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return file
}

// A ref of an older build does not say what it was: it goes with the next deletion of its model once nothing of it is stored.
func TestDeletionsTakeRefsThatDoNotSayWhatTheyAre(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p, kept := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 64)}
	for name, p := range map[string]kv.Prompt{"gone": p, "kept": kept} {
		put(t, m, p)
		if err := m.SetRef(ctx, name, p, RefOptions{Pinned: name == "kept"}); err != nil {
			t.Fatal(err)
		}
		s.eng.stateMu.Lock()
		r := s.eng.state.refs[name]
		r.Trail = nil
		s.eng.state.setRef(r)
		s.eng.stateMu.Unlock()
	}
	if _, err := s.Shrink(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if d, err := m.Delete(ctx, kv.Prompt{Tokens: tokens(3, 64)}); err != nil || d.Refs != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := s.Ref("gone"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Ref("kept"); err != nil {
		t.Error(err)
	}
}
