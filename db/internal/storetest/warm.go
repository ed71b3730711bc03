package storetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// Held is one thing that a store must give back.
type Held struct {
	Model  kv.Descriptor
	Prompt kv.Prompt
	Tokens int
}

// Warm makes a closed store that has seen checkpoints, deletions, a retired model and a compaction, and returns
// with it the files index.db and bloom as an earlier checkpoint left them.
func Warm(t testing.TB) (dir string, holds []Held, older map[string][]byte) {
	dir = t.TempDir()
	s := Open(t, dir, Options())
	d, w, q := crashtest.Plain(), crashtest.Windowed(40), crashtest.Opaque()
	old := crashtest.Plain()
	old.Name, old.Weights = "old", kv.Hash{9}
	m, wm, qm, om := Model(t, s, d), Model(t, s, w), Model(t, s, q), Model(t, s, old)
	hold := func(d kv.Descriptor, p kv.Prompt, want int) { holds = append(holds, Held{d, p, want}) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep := func() {
		older = map[string][]byte{}
		for _, name := range []string{IndexFile, BloomFile} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			must(err)
			older[name] = b
		}
	}
	chat := func(i int) kv.Prompt {
		return kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 100), crashtest.Tokens(10+i, 60+7*i)), Scope: []string{"", "alice", "bob"}[i%3], ScopeStart: 100}
	}
	prefix := func(p kv.Prompt, n int) kv.Prompt { return p.Prefix(n) }
	Eventually(t, "the Bloom filter is built", func() bool { return Stats(t, s).BloomBytes > 0 })
	for i := range 6 {
		Put(t, m, chat(i))
		Put(t, om, chat(i))
	}
	must(s.Checkpoint(t.Context()))
	Put(t, wm, chat(0))
	keep()
	must(m.SetRef(t.Context(), "system", prefix(chat(0), 100), db.RefOptions{Pinned: true, Meta: []byte("meta")}))
	must(m.SetRef(t.Context(), "doomed", chat(1), db.RefOptions{}))
	Put(t, qm, prefix(chat(3), 77))
	_, err := s.DeleteScope(t.Context(), "alice")
	must(err)
	must(s.Retire(t.Context(), om.Fingerprint()))
	must(s.Suspend(t.Context()))
	must(s.Resume(t.Context()))
	_, err = s.Compact(t.Context(), db.CompactOptions{All: true})
	must(err)
	Put(t, m, chat(6))
	must(s.Checkpoint(t.Context()))
	Put(t, m, chat(8))
	Put(t, m, chat(9))
	_, err = m.Delete(t.Context(), prefix(chat(9), 120))
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
	Crash(s)
	CheckWarm(t, dir, holds, "at first")
	return dir, holds, older
}

// CheckWarm opens the store and expects all of it to be there, now or once a damaged index has been rebuilt; and again
// after a clean close.
func CheckWarm(t testing.TB, dir string, holds []Held, what string) {
	t.Helper()
	dropped := false
	for _, again := range []string{"", ", opened again"} {
		s, err := db.Open(t.Context(), dir, Options())
		if err != nil {
			t.Fatalf("%s%s: %v", what, again, err)
		}
		if problems := admin.IndexProblems(s); again != "" && !dropped && len(problems) > 0 {
			t.Errorf("%s%s: the index is doubted: %v", what, again, problems)
		}
		models, err := db.Collect(s.Models())
		if err != nil || len(models) != 3 {
			t.Fatalf("%s%s: models %+v, %v", what, again, models, err)
		}
		for _, h := range holds {
			n, reason := Restore(t, Model(t, s, h.Model), h.Prompt)
			if n != h.Tokens && reason.Code == db.Damaged { // found out only now: it is being rebuilt
				Eventually(t, what+": the index is rebuilt", func() bool {
					n, reason = Restore(t, Model(t, s, h.Model), h.Prompt)
					return n == h.Tokens
				})
			}
			if n != h.Tokens {
				t.Fatalf("%s%s: %d tokens of %s prompt of %d in scope %q (%v), expected %d", what, again, n, h.Model.Name,
					len(h.Prompt.Tokens), h.Prompt.Scope, reason, h.Tokens)
			}
		}
		if r, err := s.Ref("system"); err != nil || !r.Pinned || r.Tokens != 100 || string(r.Meta) != "meta" {
			t.Fatalf("%s%s: ref %+v, %v", what, again, r, err)
		}
		if _, err := s.Ref("doomed"); !errors.Is(err, db.ErrNotFound) {
			t.Fatalf("%s%s: a deleted ref: %v", what, again, err)
		}
		Eventually(t, what+again+": the Bloom filter is there", func() bool { // a Close before that leaves the file as it is
			st, err := s.Stats()
			return err == nil && st.BloomBytes > 0
		})
		if err := s.Close(); err != nil {
			t.Fatalf("%s%s: close: %v", what, again, err)
		}
		// Damage that only the last checkpoint met: Close drops the index, the next open rebuilds it.
		_, err = os.Stat(filepath.Join(dir, IndexFile))
		before := dropped
		dropped = errors.Is(err, fs.ErrNotExist)
		if dropped && before {
			t.Fatalf("%s%s: the rebuilt index was dropped", what, again)
		}
	}
	r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil {
		t.Fatalf("%s: verify: %v", what, err)
	}
	for _, d := range r.Damage { // a flip in a row that nobody asked for is still there
		if !strings.Contains(what, "flipped") || filepath.Base(d.File) != IndexFile {
			t.Fatalf("%s: verify: %v", what, d)
		}
	}
}
