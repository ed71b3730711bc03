package db

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	if err := w.eng.checkpoint(ctx); err != nil {
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
	if err := errors.Join(x.Close(), w.eng.checkpoint(ctx), r.Suspend(ctx), r.Resume(ctx)); err != nil {
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
		if err := w.eng.checkpoint(ctx); err != nil {
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
	if err := w.eng.checkpoint(ctx); err != nil { // so that readers know the model
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
