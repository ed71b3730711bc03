package db

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

func readOnly() Options {
	o := options()
	o.ReadOnly = true
	return o
}

// restored is how many tokens a restore gives, each row compared.
func restored(t *testing.T, m *Model, p kv.Prompt) int {
	t.Helper()
	n, _ := restore(t, m, p)
	return n
}

// A reader beside the writer sees what the last checkpoint wrote, and says when that was. Suspend and Resume bring it up to date.
func TestReaderBesideWriter(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, options())
	m := model(t, w, plain())
	first, second := kv.Tokens(tokens(1, 200)...), kv.Tokens(tokens(2, 200)...)
	put(t, m, first)
	if err := m.SetRef(ctx, "system", first, RefOptions{}); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if err := w.eng.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	put(t, m, second)

	r := open(t, dir, readOnly())
	other := open(t, dir, readOnly())
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := r.Stats()
	if err != nil || !st.BesideWriter || st.AsOf.Before(before.Add(-time.Second)) || st.AsOf.After(time.Now()) {
		t.Errorf("as of %v, beside a writer %t, %v; the checkpoint was after %v", st.AsOf, st.BesideWriter, err, before)
	}
	rm := model(t, r, plain())
	expect(t, rm, first, 200)
	expect(t, rm, second, 0)
	if _, err := rm.Put(ctx, second, filled(rm.Descriptor(), &second, 0, 200), PutOptions{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("put: %v", err)
	}
	if _, err := r.Verify(ctx, VerifyOptions{}); !errors.Is(err, ErrLocked) {
		t.Errorf("verify: %v", err)
	}

	// What goes meanwhile is gone for the reader, too, and what comes is there when it looks again.
	x, err := rm.Match(ctx, first, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Delete(ctx, first.Prefix(1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := x.Restore(ctx, empty(rm.Descriptor(), 200)); err != nil || got.Tokens != 0 || got.Reason.Code != Gone {
		t.Errorf("of what was deleted %d tokens, %v, %v", got.Tokens, got.Reason, err)
	}
	if err := errors.Join(x.Close(), w.eng.Checkpoint(ctx), r.Suspend(ctx), r.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	expect(t, rm, first, 0)
	expect(t, rm, second, 200)

	// The writer closes; the reader goes on, and a store without a writer is verified.
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, rm, second, 200)
	if rep, err := r.Verify(ctx, VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
		t.Errorf("verify: %v, %v", rep.Damage, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// A writer opens a store that readers have open.
func TestWriterBesideReaders(t *testing.T) {
	dir := t.TempDir()
	p := kv.Tokens(tokens(1, 200)...)
	put(t, model(t, open(t, dir, options()), plain()), p)
	// The first store is closed by a kill in effect: a reader replays its log.
	crash := t.TempDir()
	if err := os.CopyFS(crash, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	r := open(t, crash, readOnly())
	if st, err := r.Stats(); err != nil || st.BesideWriter || st.AsOf.IsZero() {
		t.Errorf("%v, beside a writer %t, %v", st.AsOf, st.BesideWriter, err)
	}
	expect(t, model(t, r, plain()), p, 200)
	w := open(t, crash, options())
	m := model(t, w, plain())
	expect(t, m, p, 200)
	if _, err := m.Delete(ctx, p.Prefix(1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		put(t, m, kv.Tokens(tokens(2, 200)...))
		if err := w.eng.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := restored(t, model(t, r, plain()), p); got != 0 {
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
	o := options()
	o.Budget, o.SegmentBytes, o.CheckpointInterval = 4<<20, 256<<10, 10*time.Millisecond
	var done atomic.Bool
	var wait sync.WaitGroup
	w, err := Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	put(t, model(t, w, plain()), kv.Tokens(tokens(7, 100)...))
	if err := w.eng.Checkpoint(ctx); err != nil { // so that readers know the model
		t.Fatal(err)
	}
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	wait.Go(func() {
		defer done.Store(true)
		for round := range rounds {
			m := model(t, w, plain())
			for i := range 20 {
				put(t, m, kv.Tokens(tokens(round*7+i, 100)...))
				if i%5 == 0 {
					if _, err := m.Delete(ctx, kv.Tokens(tokens(round*7+i-3, 16)...)); err != nil {
						t.Error(err)
					}
				}
			}
			if _, err := w.Compact(ctx, CompactOptions{All: round%4 == 0}); err != nil {
				t.Error(err)
			}
			if round%8 == 7 {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				var err error
				if w, err = Open(ctx, dir, o); err != nil {
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
				r, err := Open(ctx, dir, readOnly())
				if err != nil {
					t.Errorf("reader: %v", err)
					return
				}
				opens.Add(1)
				m := model(t, r, plain())
				for i := range 30 {
					tokensRestored.Add(int64(restored(t, m, kv.Tokens(tokens(i*11, 100)...))))
				}
				if st, err := r.Stats(); err != nil || st.Damaged > 0 {
					t.Errorf("%d damaged records, %v", st.Damaged, err)
				}
				if p := r.IndexProblems(); len(p) > 0 {
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

// killedChild runs this test binary as another process that does what childStore says, and is killed by itself.
func killedChild(t *testing.T, job, dir string) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChildStore$")
	c.Env = append(os.Environ(), "DORMOUSE_CHILD="+job, "DORMOUSE_CHILD_DIR="+dir)
	out, err := c.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(string(out), "killed now") {
		t.Fatalf("child: %v\n%s", err, out)
	}
}

// A writer comes after the reader, deletes, and is killed before its first checkpoint: index.db is what it was, and LOCK is free. What it
// destroyed is gone for the reader, and not damaged. So is it if there was no index.db.
func TestReaderAfterAKilledWriter(t *testing.T) {
	for _, lost := range []string{"", indexName} {
		dir := t.TempDir()
		s := open(t, dir, options())
		p := kv.Tokens(tokens(1, 200)...)
		put(t, model(t, s, plain()), p)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if lost != "" {
			if err := os.Remove(filepath.Join(dir, lost)); err != nil {
				t.Fatal(err)
			}
		}
		r := open(t, dir, readOnly())
		rm := model(t, r, plain())
		x, err := rm.Match(ctx, p, MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		killedChild(t, "delete and die", dir)
		got, err := x.Restore(ctx, empty(rm.Descriptor(), 200))
		if err != nil || got.Tokens != 0 || got.Reason.Code != Gone {
			t.Errorf("without %q: %d tokens, %v, %v", lost, got.Tokens, got.Reason, err)
		}
		if st, err := r.Stats(); err != nil || st.Damaged != 0 {
			t.Errorf("without %q: %d damaged records, %v", lost, st.Damaged, err)
		}
		x.Close()

		// LOCK has a dead process's pid. A writer waits for a reader that has it for a moment all the same.
		reading, err := vfs.ShareLock(filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Millisecond, func() { reading.Release() })
		open(t, dir, options())
	}
}

// Verify keeps writers out, also where LOCK is missing.
func TestVerifyWithoutLock(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir, options()).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	o := readOnly()
	o.alone = true
	open(t, dir, o)
	if _, err := Open(ctx, dir, options()); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer beside it: %v", err)
	}
}

// The planes of what went since it was listed are gone, however it went.
func TestPlanesOfWhatIsGone(t *testing.T) {
	for how, do := range map[string]func(s *Store, m *Model, p kv.Prompt) error{
		"delete": func(s *Store, m *Model, p kv.Prompt) error { _, err := m.Delete(ctx, p.Prefix(16)); return err },
		"retire": func(s *Store, m *Model, p kv.Prompt) error { return s.Retire(ctx, m.Fingerprint()) },
	} {
		s := open(t, t.TempDir(), options())
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 160)...)
		put(t, m, p)
		all, err := Collect(s.Blocks(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(do(s, m, p), s.Sync(ctx), s.Checkpoint(ctx)); err != nil {
			t.Fatal(err)
		}
		if _, err := Collect(s.Planes(ctx, all[0])); !errors.Is(err, ErrGone) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// What a caller writes into a ref's metadata is the caller's.
func TestMetadataOfARefIsACopy(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 64)...)
	put(t, m, p)
	if err := m.SetRef(ctx, "a", p, RefOptions{Meta: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := s.Ref("a")
		if err != nil || string(r.Meta) != "hello" {
			t.Fatalf("%q, %v", r.Meta, err)
		}
		r.Meta[0] = 'X'
	}
}
