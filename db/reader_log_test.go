package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// While a reader reads the log, the writer makes checkpoints, which remove the file or make a new one of it.
func TestReaderWhoseLogIsTakenAway(t *testing.T) {
	for at := range 8 {
		w, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p, q := kv.Tokens(crashtest.Tokens(1, 100)...), kv.Tokens(crashtest.Tokens(2, 100)...)
		storetest.Put(t, m, p)
		storetest.Put(t, m, q)
		storetest.OK(t, w.Checkpoint(t.Context()))
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(3, 40_000)...)) // its frame is longer than what is read at once
		x := storetest.Match(t, m, p)
		storetest.Must(m.Delete(t.Context(), p.Prefix(1)))(t)
		disk, calls := storetest.Over(vfs.OS), 0
		disk.Before(func(c storetest.Call) error {
			if c.InLog() {
				if calls++; calls == at+1 {
					storetest.Meanwhile(func() { // twice: the spare of the first is the next file of the second
						for range 2 {
							storetest.Put(t, m, kv.Tokens(crashtest.Tokens(4+at, 100)...))
							if err := w.Checkpoint(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			return nil
		})
		r := storetest.OpenOn(t, disk, w.Dir(), readOnly())
		rm := storetest.Model(t, r, crashtest.Plain())
		if n, reason := storetest.Restore(t, rm, p); n > 0 {
			t.Errorf("a checkpoint before call %d for the log: %d tokens are restored that were deleted before (%v)", at, n, reason)
		}
		storetest.Expect(t, rm, q, 100)
		if calls <= at {
			t.Errorf("there are %d calls for the log", calls)
		}
		storetest.OK(t, errors.Join(r.Close(), x.Close()))
	}
}

// A reader that opens before the writer's first checkpoint finds nothing, and says as of when: never. It knows the models, so that whoever is built
// on it works.
func TestReaderBeforeTheFirstCheckpoint(t *testing.T) {
	w, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 100)...)
	storetest.Put(t, m, p)
	if _, err := os.Stat(filepath.Join(w.Dir(), storetest.IndexFile)); err == nil {
		storetest.OK(t, os.Remove(filepath.Join(w.Dir(), storetest.IndexFile)))
	}
	r := storetest.Open(t, w.Dir(), readOnly())
	st := storetest.Stats(t, r)
	if !st.AsOf.IsZero() || !st.BesideWriter || st.Blocks != 0 {
		t.Errorf("as of %v, beside a writer %t, %d blocks", st.AsOf, st.BesideWriter, st.Blocks)
	}
	rm := storetest.Model(t, r, crashtest.Plain())
	storetest.Expect(t, rm, p, 0)
	if _, err := r.Register(t.Context(), crashtest.Opaque()); !errors.Is(err, db.ErrReadOnly) || !strings.Contains(err.Error(), "has no model \"opaque\"") {
		t.Errorf("a model that the writer has not registered: %v", err)
	}
	storetest.OK(t, storetest.Again(func() error { return w.Checkpoint(t.Context()) }))
	storetest.OK(t, errors.Join(r.Suspend(t.Context()), r.Resume(t.Context())))
	storetest.Expect(t, rm, p, 100)
	if st := storetest.Stats(t, r); st.AsOf.IsZero() {
		t.Error("the checkpoint's time is not known")
	}
}

// Where the log behind the checkpoint cannot be read, nobody knows what was deleted: a reader is refused, with file and offset, until the writer has
// made a checkpoint.
func TestReaderBesideADamagedLog(t *testing.T) {
	w, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p, q := kv.Tokens(crashtest.Tokens(1, 100)...), kv.Tokens(crashtest.Tokens(2, 100)...)
	storetest.Put(t, m, p)
	storetest.OK(t, w.Checkpoint(t.Context()))
	x := storetest.Match(t, m, p)
	storetest.Must(m.Delete(t.Context(), p.Prefix(1)))(t)
	path, log := storetest.NewestLog(t, w.Dir())
	end := len(log)
	for end > 0 && log[end-1] == 0 {
		end--
	}
	storetest.Put(t, m, q) // behind the frame that says so
	storetest.Write(t, path, int64(end-1), []byte{log[end-1] ^ 8})
	r, err := db.Open(t.Context(), w.Dir(), readOnly())
	var damage *db.CorruptError
	if err == nil {
		n, _ := storetest.Restore(t, storetest.Model(t, r, crashtest.Plain()), p)
		t.Fatalf("a reader opens, and restores %d tokens of what was deleted", n)
	} else if !errors.As(err, &damage) || damage.File != path || damage.Offset == 0 {
		t.Errorf("%v: expected damage in %s", err, path)
	}
	storetest.OK(t, w.Checkpoint(t.Context()))
	r = storetest.Open(t, w.Dir(), readOnly())
	rm := storetest.Model(t, r, crashtest.Plain())
	storetest.Expect(t, rm, p, 0)
	storetest.Expect(t, rm, q, 100)
	storetest.OK(t, errors.Join(r.Close(), x.Close()))
}
