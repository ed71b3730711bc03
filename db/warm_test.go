package db

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// heldPrefix is one thing that a store must give back.
type heldPrefix struct {
	d    kv.Descriptor
	p    kv.Prompt
	want int
}

// warmStore makes a closed store that has seen checkpoints, deletions, a retired model and a compaction, and returns
// with it the files index.db and bloom as an earlier checkpoint left them.
func warmStore(t *testing.T) (dir string, holds []heldPrefix, older map[string][]byte) {
	dir = t.TempDir()
	s := open(t, dir, options())
	d, w, q := plain(), windowed(40), opaque()
	old := plain()
	old.Name, old.Weights = "old", kv.Hash{9}
	m, wm, qm, om := model(t, s, d), model(t, s, w), model(t, s, q), model(t, s, old)
	hold := func(d kv.Descriptor, p kv.Prompt, want int) { holds = append(holds, heldPrefix{d, p, want}) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep := func() {
		older = map[string][]byte{}
		for _, name := range []string{indexName, bloomName} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			must(err)
			older[name] = b
		}
	}
	chat := func(i int) kv.Prompt {
		return kv.Prompt{Tokens: concat(tokens(1, 100), tokens(10+i, 60+7*i)), Scope: []string{"", "alice", "bob"}[i%3], ScopeStart: 100}
	}
	prefix := func(p kv.Prompt, n int) kv.Prompt { return p.Prefix(n) }
	eventually(t, "the Bloom filter is built", func() bool { return s.eng.bloom.Load() != nil })
	for i := range 6 {
		put(t, m, chat(i))
		put(t, om, chat(i))
	}
	must(s.Checkpoint(ctx))
	put(t, wm, chat(0))
	keep()
	must(m.SetRef(ctx, "system", prefix(chat(0), 100), RefOptions{Pinned: true, Meta: []byte("meta")}))
	must(m.SetRef(ctx, "doomed", chat(1), RefOptions{}))
	put(t, qm, prefix(chat(3), 77))
	_, err := s.DeleteScope(ctx, "alice")
	must(err)
	must(s.Retire(ctx, om.Fingerprint()))
	must(s.Suspend(ctx))
	must(s.Resume(ctx))
	_, err = s.Compact(ctx, CompactOptions{All: true})
	must(err)
	put(t, m, chat(6))
	must(s.Checkpoint(ctx))
	put(t, m, chat(8))
	put(t, m, chat(9))
	_, err = m.Delete(ctx, prefix(chat(9), 120))
	must(err)
	for i := range 9 {
		want := len(chat(i).Tokens)
		if i%3 == 1 || i == 7 {
			want = 100
		}
		hold(d, chat(i), want)
	}
	hold(d, chat(9), 112) // the block with token 119 went
	hold(w, chat(0), len(chat(0).Tokens))
	hold(q, chat(3), 77)
	crash(s)
	checkWarm(t, dir, holds, "at first")
	return dir, holds, older
}

// checkWarm opens the store and expects all of it to be there, now or once a damaged index has been rebuilt; and again
// after a clean close.
func checkWarm(t *testing.T, dir string, holds []heldPrefix, what string) {
	t.Helper()
	dropped := false
	for _, again := range []string{"", ", opened again"} {
		s, err := Open(ctx, dir, options())
		if err != nil {
			t.Fatalf("%s%s: %v", what, again, err)
		}
		if problems := s.IndexProblems(); again != "" && !dropped && len(problems) > 0 {
			t.Errorf("%s%s: the index is doubted: %v", what, again, problems)
		}
		models, err := Collect(s.Models())
		if err != nil || len(models) != 3 {
			t.Fatalf("%s%s: models %+v, %v", what, again, models, err)
		}
		for _, h := range holds {
			n, reason := restore(t, model(t, s, h.d), h.p)
			if n != h.want && reason.Code == Damaged { // found out only now: it is being rebuilt
				eventually(t, what+": the index is rebuilt", func() bool {
					n, reason = restore(t, model(t, s, h.d), h.p)
					return n == h.want
				})
			}
			if n != h.want {
				t.Fatalf("%s%s: %d tokens of %s prompt of %d in scope %q (%v), expected %d", what, again, n, h.d.Name,
					len(h.p.Tokens), h.p.Scope, reason, h.want)
			}
		}
		if r, err := s.Ref("system"); err != nil || !r.Pinned || r.Tokens != 100 || string(r.Meta) != "meta" {
			t.Fatalf("%s%s: ref %+v, %v", what, again, r, err)
		}
		if _, err := s.Ref("doomed"); !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s%s: a deleted ref: %v", what, again, err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("%s%s: close: %v", what, again, err)
		}
		// Damage that only the last checkpoint met: Close drops the index, the next open rebuilds it.
		_, err = os.Stat(filepath.Join(dir, indexName))
		before := dropped
		dropped = errors.Is(err, fs.ErrNotExist)
		if dropped && before {
			t.Fatalf("%s%s: the rebuilt index was dropped", what, again)
		}
	}
	r, err := Verify(ctx, dir, VerifyOptions{})
	if err != nil {
		t.Fatalf("%s: verify: %v", what, err)
	}
	for _, d := range r.Damage { // a flip in a row that nobody asked for is still there
		if !strings.Contains(what, "flipped") || filepath.Base(d.File) != indexName {
			t.Fatalf("%s: verify: %v", what, d)
		}
	}
}

// index.db and bloom are derived: whatever happens to them, nothing is lost and nothing comes back.
func TestDerivedFilesAreRebuilt(t *testing.T) {
	dir, holds, older := warmStore(t)
	read := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := rand.New(rand.NewPCG(3, 4))
	mangles := []struct {
		name string
		do   func(path, name string) error
	}{
		{"missing", func(path, _ string) error { return os.Remove(path) }},
		{"empty", func(path, _ string) error { return os.WriteFile(path, nil, 0o600) }},
		{"cut in half", func(path, name string) error { return os.Truncate(path, int64(len(read(dir, name))/2)) }},
		{"cut by a byte", func(path, name string) error { return os.Truncate(path, int64(len(read(dir, name))-1)) }},
		{"an older generation", func(path, name string) error { return os.WriteFile(path, older[name], 0o600) }},
		{"rubbish", func(path, name string) error {
			b := read(dir, name)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return os.WriteFile(path, b, 0o600)
		}},
		{"zeros", func(path, name string) error { return os.WriteFile(path, make([]byte, len(read(dir, name))), 0o600) }},
	}
	flips := 12
	if testing.Short() {
		flips = 2
	}
	for i := range flips {
		mangles = append(mangles, struct {
			name string
			do   func(path, name string) error
		}{fmt.Sprintf("flipped %d", i), func(path, name string) error {
			b := read(dir, name)
			at := r.IntN(len(b))
			for b[at] == 0 && name == indexName { // most zeros are of free pages
				at = r.IntN(len(b))
			}
			b[at] ^= 1 << r.IntN(8)
			return os.WriteFile(path, b, 0o600)
		}})
	}
	for _, m := range mangles {
		for _, names := range [][]string{{indexName}, {bloomName}, {indexName, bloomName}} {
			at := copyStore(t, dir)
			for _, name := range names {
				if err := m.do(filepath.Join(at, name), name); err != nil {
					t.Fatal(err)
				}
			}
			checkWarm(t, at, holds, fmt.Sprint(names, " ", m.name))
		}
	}
}

func TestFormatIsRestored(t *testing.T) {
	dir, holds, _ := warmStore(t)
	name := filepath.Join(dir, formatName)
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(want)
	damaged[50] ^= 4
	for what, b := range map[string][]byte{"missing": nil, "empty": {}, "short": want[:40], "flipped": damaged} {
		at := copyStore(t, dir)
		name := filepath.Join(at, formatName)
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if b != nil {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		checkWarm(t, at, holds, "FORMAT "+what)
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("FORMAT %s: restored as %x, %v, expected %x", what, got, err, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, dir, options()); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("foreign file: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "thesis.txt")); err != nil || string(b) != "mine" {
		t.Errorf("foreign file is now %q, %v", b, err)
	}

	dir = smallStore(t)
	f := newFormat()
	f.Version++
	if err := os.WriteFile(filepath.Join(dir, formatName), f.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	for _, readOnly := range []bool{false, true} {
		o := options()
		o.ReadOnly = readOnly
		if _, err := Open(ctx, dir, o); !errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) {
			t.Errorf("newer version, read-only %t: %v", readOnly, err)
		}
	}
	sameTree(t, before, tree(t, dir), "an open that was refused")
}

// A read-only open works, whatever is missing, and changes no byte.
func TestReadOnlyChangesNothing(t *testing.T) {
	dir, holds, _ := warmStore(t)
	s := open(t, dir, options()) // and a log to replay, after a kill
	put(t, model(t, s, plain()), kv.Prompt{Tokens: tokens(50, 90)})
	crash(s)
	for _, lost := range []string{"nothing", indexName, bloomName, formatName, lockName} {
		at := copyStore(t, dir)
		os.Remove(filepath.Join(at, lost))
		before := tree(t, at)
		o := options()
		o.ReadOnly = true
		s, err := Open(ctx, at, o)
		if err != nil {
			t.Fatalf("without %s: %v", lost, err)
		}
		for _, h := range holds {
			expect(t, model(t, s, h.d), h.p, h.want)
		}
		m := model(t, s, plain())
		expect(t, m, kv.Prompt{Tokens: tokens(50, 90)}, 90)
		p := kv.Prompt{Tokens: tokens(60, 50)}
		_, putErr := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, 50), PutOptions{})
		_, delErr := m.Delete(ctx, holds[0].p)
		for what, err := range map[string]error{
			"put": putErr, "delete": delErr, "ref": m.SetRef(ctx, "x", holds[0].p.Prefix(50), RefOptions{}),
			"retire": s.Retire(ctx, m.Fingerprint()), "sync": s.Sync(ctx), "checkpoint": s.Checkpoint(ctx),
		} {
			if !errors.Is(err, ErrReadOnly) {
				t.Errorf("read-only %s: %v", what, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("without %s: close: %v", lost, err)
		}
		sameTree(t, before, tree(t, at), "a read-only open without "+lost)
	}
}

// tree reads every file of a directory.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			out[path] = "directory"
			return nil
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTree(t testing.TB, before, after map[string]string, what string) {
	t.Helper()
	for path, b := range after {
		if old, ok := before[path]; !ok || old != b {
			t.Errorf("%s changed %s (there before: %t)", what, path, ok)
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			t.Errorf("%s removed %s", what, path)
		}
	}
}
