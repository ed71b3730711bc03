package db_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

func readOnly() db.Options {
	o := storetest.Options()
	o.ReadOnly = true
	return o
}

// storedOf is how many tokens a restore gives, each row compared.
func storedOf(t *testing.T, m *db.Model, p kv.Prompt) int {
	t.Helper()
	n, _ := storetest.Restore(t, m, p)
	return n
}

// A reader beside the writer sees what the last checkpoint wrote, and says when that was. Suspend and Resume bring it up to date.
func TestReaderBesideWriter(t *testing.T) {
	w, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := w.Dir()
	first, second := kv.Tokens(crashtest.Tokens(1, 200)...), kv.Tokens(crashtest.Tokens(2, 200)...)
	storetest.Put(t, m, first)
	storetest.OK(t, m.SetRef(t.Context(), "system", first, db.RefOptions{}))
	before := time.Now()
	storetest.OK(t, w.Checkpoint(t.Context()))
	storetest.Put(t, m, second)

	r := storetest.Open(t, dir, readOnly())
	other := storetest.Open(t, dir, readOnly())
	storetest.OK(t, other.Close())
	st, err := r.Stats()
	if err != nil || !st.BesideWriter || st.AsOf.Before(before.Add(-time.Second)) || st.AsOf.After(time.Now()) {
		t.Errorf("as of %v, beside a writer %t, %v; the checkpoint was after %v", st.AsOf, st.BesideWriter, err, before)
	}
	rm := storetest.Model(t, r, crashtest.Plain())
	storetest.Expect(t, rm, first, 200)
	storetest.Expect(t, rm, second, 0)
	if _, err := rm.Put(t.Context(), second, storetest.Filled(rm.Descriptor(), &second, 0, 200), db.PutOptions{}); !errors.Is(err, db.ErrReadOnly) {
		t.Errorf("put: %v", err)
	}
	if _, err := admin.VerifyStore(t.Context(), r, admin.VerifyOptions{}); !errors.Is(err, db.ErrLocked) {
		t.Errorf("verify: %v", err)
	}

	// What goes meanwhile is gone for the reader, too, and what comes is there when it looks again.
	x := storetest.Match(t, rm, first)
	storetest.Must(m.Delete(t.Context(), first.Prefix(1)))(t)
	storetest.OK(t, w.Sync(t.Context()))
	if got, err := x.Restore(t.Context(), storetest.Empty(rm.Descriptor(), 200)); err != nil || got.Tokens != 0 || got.Reason.Code != db.Gone {
		t.Errorf("of what was deleted %d tokens, %v, %v", got.Tokens, got.Reason, err)
	}
	storetest.OK(t, errors.Join(x.Close(), w.Checkpoint(t.Context()), r.Suspend(t.Context()), r.Resume(t.Context())))
	storetest.Expect(t, rm, first, 0)
	storetest.Expect(t, rm, second, 200)

	// The writer closes; the reader goes on, and a store without a writer is verified.
	storetest.OK(t, w.Close())
	storetest.Expect(t, rm, second, 200)
	storetest.Sound(t, r)
	storetest.OK(t, r.Close())
}

// A writer opens a store that readers have open.
func TestWriterBesideReaders(t *testing.T) {
	dir := t.TempDir()
	p := kv.Tokens(crashtest.Tokens(1, 200)...)
	storetest.Put(t, storetest.Model(t, storetest.Open(t, dir, storetest.Options()), crashtest.Plain()), p)
	// The first store is closed by a kill in effect: a reader replays its log.
	crash := t.TempDir()
	storetest.OK(t, os.CopyFS(crash, os.DirFS(dir)))
	r := storetest.Open(t, crash, readOnly())
	if st, err := r.Stats(); err != nil || st.BesideWriter || st.AsOf.IsZero() {
		t.Errorf("%v, beside a writer %t, %v", st.AsOf, st.BesideWriter, err)
	}
	storetest.Expect(t, storetest.Model(t, r, crashtest.Plain()), p, 200)
	w := storetest.Open(t, crash, storetest.Options())
	m := storetest.Model(t, w, crashtest.Plain())
	storetest.Expect(t, m, p, 200)
	storetest.Must(m.Delete(t.Context(), p.Prefix(1)))(t)
	for range 3 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 200)...))
		storetest.OK(t, w.Checkpoint(t.Context()))
	}
	if got := storedOf(t, storetest.Model(t, r, crashtest.Plain()), p); got != 0 {
		t.Errorf("%d tokens of what was deleted", got)
	}
	if st, err := r.Stats(); err != nil || st.Damaged != 0 {
		t.Errorf("%d damaged records, %v", st.Damaged, err)
	}
}

// Readers open, look and restore while a writer puts, deletes, evicts, compacts, and opens and closes. No row is wrong, nothing looks
// damaged, nobody is kept out.
func TestReadersBesideABusyWriter(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.CheckpointInterval = 4<<20, 256<<10, 10*time.Millisecond
	var done atomic.Bool
	var wait sync.WaitGroup
	w, err := db.Open(t.Context(), dir, o)
	storetest.OK(t, err)
	storetest.Put(t, storetest.Model(t, w, crashtest.Plain()), kv.Tokens(crashtest.Tokens(7, 100)...))
	storetest.OK(t, w.Checkpoint(t.Context())) // so that readers know the model
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	wait.Go(func() {
		defer done.Store(true)
		for round := range rounds {
			m := storetest.Model(t, w, crashtest.Plain())
			for i := range 20 {
				storetest.Put(t, m, kv.Tokens(crashtest.Tokens(round*7+i, 100)...))
				if i%5 == 0 {
					if _, err := m.Delete(t.Context(), kv.Tokens(crashtest.Tokens(round*7+i-3, 16)...)); err != nil {
						t.Error(err)
					}
				}
			}
			if _, err := w.Compact(t.Context(), db.CompactOptions{All: round%4 == 0}); err != nil {
				t.Error(err)
			}
			if round%8 == 7 {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				var err error
				if w, err = db.Open(t.Context(), dir, o); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var opens, tokensRestored atomic.Int64
	for range 2 {
		wait.Go(func() {
			for !done.Load() {
				r, err := db.Open(t.Context(), dir, readOnly())
				if err != nil {
					t.Errorf("reader: %v", err)
					return
				}
				opens.Add(1)
				m := storetest.Model(t, r, crashtest.Plain())
				for i := range 30 {
					tokensRestored.Add(int64(storedOf(t, m, kv.Tokens(crashtest.Tokens(i*11, 100)...))))
				}
				if st, err := r.Stats(); err != nil || st.Damaged > 0 {
					t.Errorf("%d damaged records, %v", st.Damaged, err)
				}
				if p := admin.IndexProblems(r); len(p) > 0 {
					t.Errorf("index: %v", p)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wait.Wait()
	t.Logf("%d opens, %d tokens restored", opens.Load(), tokensRestored.Load())
	if tokensRestored.Load() == 0 {
		t.Error("nothing was restored: this shows nothing")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestChildThatDies is what a process does that is killed beside a reader.
func TestChildThatDies(t *testing.T) {
	dir := os.Getenv("DORMOUSE_CHILD_DIR")
	if os.Getenv("DORMOUSE_CHILD") != "delete and die" {
		t.Skip("SKIPPED: runs in a child process only, which other tests start")
	}
	s, p := storetest.Open(t, dir, storetest.Options()), kv.Tokens(crashtest.Tokens(1, 200)...)
	storetest.Must(storetest.Model(t, s, crashtest.Plain()).Delete(t.Context(), p.Prefix(1)))(t)
	storetest.OK(t, s.Sync(t.Context()))
	fmt.Println("killed now")
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Kill()
	}
	select {}
}

// killedChild runs this test binary as another process that does what childStore says, and is killed by itself.
func killedChild(t *testing.T, job, dir string) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChildThatDies$")
	c.Env = append(os.Environ(), "DORMOUSE_CHILD="+job, "DORMOUSE_CHILD_DIR="+dir)
	out, err := c.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(string(out), "killed now") {
		t.Fatalf("child: %v\n%s", err, out)
	}
}

// A writer comes after the reader, deletes, and is killed before its first checkpoint: index.db is what it was, and LOCK is free. What it
// destroyed is gone for the reader, and not damaged. So is it if there was no index.db.
func TestReaderAfterAKilledWriter(t *testing.T) {
	for _, lost := range []string{"", storetest.IndexFile} {
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		p := kv.Tokens(crashtest.Tokens(1, 200)...)
		storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
		storetest.OK(t, s.Close())
		if lost != "" {
			storetest.OK(t, os.Remove(filepath.Join(dir, lost)))
		}
		r := storetest.Open(t, dir, readOnly())
		rm := storetest.Model(t, r, crashtest.Plain())
		x := storetest.Match(t, rm, p)
		killedChild(t, "delete and die", dir)
		got, err := x.Restore(t.Context(), storetest.Empty(rm.Descriptor(), 200))
		if err != nil || got.Tokens != 0 || got.Reason.Code != db.Gone {
			t.Errorf("without %q: %d tokens, %v, %v", lost, got.Tokens, got.Reason, err)
		}
		if st, err := r.Stats(); err != nil || st.Damaged != 0 {
			t.Errorf("without %q: %d damaged records, %v", lost, st.Damaged, err)
		}
		x.Close()

		// LOCK has a dead process's pid. A writer waits for a reader that has it for a moment all the same.
		reading := storetest.Must(vfs.ShareLock(filepath.Join(dir, storetest.LockFile)))(t)
		time.AfterFunc(50*time.Millisecond, func() { reading.Release() })
		storetest.Open(t, dir, storetest.Options())
	}
}

// Verify keeps writers out, also where LOCK is missing.
func TestVerifyWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Tokens(crashtest.Tokens(1, 64)...))
	storetest.OK(t, s.Close())
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.LockFile)))
	asked := 0
	_, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{Progress: func(db.Progress) {
		if asked++; asked%8 != 1 { // each waits for the lock, for a second
			return
		}
		var err error
		var wait sync.WaitGroup
		wait.Go(func() { _, err = db.Open(t.Context(), dir, storetest.Options()) }) // whose locks are not this goroutine's
		if wait.Wait(); !errors.Is(err, db.ErrLocked) {
			t.Errorf("a writer beside it: %v", err)
		}
	}})
	if err != nil || asked == 0 {
		t.Error(asked, err)
	}
}

// The planes of what went since it was listed are gone, however it went.
func TestPlanesOfWhatIsGone(t *testing.T) {
	for how, do := range map[string]func(s *db.Store, m *db.Model, p kv.Prompt) error{
		"delete": func(s *db.Store, m *db.Model, p kv.Prompt) error {
			_, err := m.Delete(t.Context(), p.Prefix(16))
			return err
		},
		"retire": func(s *db.Store, m *db.Model, p kv.Prompt) error { return s.Retire(t.Context(), m.Fingerprint()) },
	} {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p := kv.Tokens(crashtest.Tokens(1, 160)...)
		storetest.Put(t, m, p)
		all := storetest.Must(db.Collect(s.Blocks(t.Context())))(t)
		storetest.OK(t, errors.Join(do(s, m, p), s.Sync(t.Context()), s.Checkpoint(t.Context())))
		if _, err := db.Collect(admin.Planes(t.Context(), s, all[0])); !errors.Is(err, db.ErrGone) || errors.Is(err, db.ErrCorrupt) {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// What a caller writes into a ref's metadata is the caller's.
func TestMetadataOfARefIsACopy(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "a", p, db.RefOptions{Meta: []byte("hello")}))
	for range 2 {
		r, err := s.Ref("a")
		if err != nil || string(r.Meta) != "hello" {
			t.Fatalf("%q, %v", r.Meta, err)
		}
		r.Meta[0] = 'X'
	}
}

// A reader whose budget is smaller than what is stored refuses all that would write, and makes no room for it.
func TestReaderWithASmallBudget(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 4096)} // 1 MiB
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "ref", p, db.RefOptions{}))
	gone := kv.Prompt{Tokens: crashtest.Tokens(3, 64)}
	storetest.Put(t, m, gone)
	x, err := m.Match(t.Context(), gone, db.MatchOptions{})
	storetest.OK(t, err)
	storetest.Must(m.Delete(t.Context(), gone))(t)
	storetest.Crash(s, x) // so that something waits to be destroyed
	o := storetest.Options()
	o.ReadOnly, o.Budget = true, 1<<20
	r := storetest.Open(t, dir, o)
	rm := storetest.Model(t, r, crashtest.Plain())
	other := kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	ctx := t.Context()
	for what, do := range map[string]func() error{
		"register": func() error { _, err := r.Register(ctx, crashtest.Windowed(20)); return err },
		"put": func() error {
			_, err := rm.Put(ctx, other, storetest.Filled(rm.Descriptor(), &other, 0, 64), db.PutOptions{})
			return err
		},
		"delete":       func() error { _, err := rm.Delete(ctx, p); return err },
		"delete scope": func() error { _, err := r.DeleteScope(ctx, "scope"); return err },
		"retire":       func() error { return r.Retire(ctx, rm.Fingerprint()) },
		"note":         func() error { return rm.SetNote(ctx, "note", []byte("x")) },
		"ref":          func() error { return rm.SetRef(ctx, "another", p, db.RefOptions{}) },
		"unref":        func() error { return r.DeleteRef(ctx, "ref") },
		"compact":      func() error { _, err := r.Compact(ctx, db.CompactOptions{All: true}); return err },
		"shrink":       func() error { _, err := r.Shrink(ctx, 1<<20); return err },
		"checkpoint":   func() error { return r.Checkpoint(ctx) },
	} {
		if err := do(); !errors.Is(err, db.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	storetest.Expect(t, rm, p, 4096)
}
