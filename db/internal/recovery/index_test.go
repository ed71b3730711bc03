package recovery_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// damagedAtClose is a store into which a process put that was then killed. The next one opened it, and put nothing; its index is
// damaged where only a checkpoint will look.
func damagedAtClose(t *testing.T) *crashRun {
	w := crashCase(t, crashMode{})
	w.steps(t, crashOp{kind: "put", chat: 0, n: 91}, crashOp{kind: "checkpoint"})
	w.steps(t, putAll()...)
	image := w.dies(t)
	next := nextRun(t, image, w.k, w.j)
	next.steps(t, crashOp{kind: "open"})
	x := storetest.Match(t, next.model(0), crashChats()[0].p)
	x.Close()
	f := storetest.Must(os.OpenFile(filepath.Join(image.Dir(), storetest.IndexFile), os.O_RDWR, 0))(t)
	defer f.Close()
	info := storetest.Must(f.Stat())(t)
	tables := 2 * int64(os.Getpagesize()) // behind the meta pages
	b := make([]byte, info.Size()-tables)
	storetest.Must(f.ReadAt(b, tables))(t)
	for i := range b {
		b[i] ^= 0x55
	}
	storetest.Must(f.WriteAt(b, tables))(t)
	return next
}

// A Close or a Suspend that meets a damaged index, and says that all is well, has made durable what an earlier process left: the next open
// rebuilds the index from that.
func TestEndMeetsADamagedIndex(t *testing.T) {
	for _, end := range []string{"close", "suspend"} {
		w := damagedAtClose(t)
		w.ends(t, end)
		if _, err := os.Stat(filepath.Join(w.d.Dir(), storetest.IndexFile)); err == nil {
			t.Errorf("%s: the damaged index is still there: no checkpoint met it", end)
		}
		w.cuts(t, 8)
	}
}

// The index that is built then stays.
func TestRebuiltIndexIsNotDroppedAgain(t *testing.T) {
	w := damagedAtClose(t)
	w.steps(t, crashOp{kind: "close"}, crashOp{kind: "open"}, crashOp{kind: "close"})
	if _, err := os.Stat(filepath.Join(w.d.Dir(), storetest.IndexFile)); err != nil {
		t.Error(err)
	}
}

// If that cannot be made durable, both say so.
func TestDamagedIndexAndAFailedSync(t *testing.T) {
	for what, end := range map[string]func(s *db.Store) error{
		"close": (*db.Store).Close, "suspend": func(s *db.Store) error { return s.Suspend(t.Context()) },
	} {
		w := damagedAtClose(t)
		w.d.Before(failSyncs(storetest.LogDir))
		if err := end(w.s); err == nil {
			t.Errorf("%s: an fsync had failed, and it says nothing", what)
		}
		w.d.Before(nil)
	}
}

// A rebuild of the index that did not come to its end, twice, costs nothing: what only the old index knew (the log is lost)
// is there when a third one does. What was deleted and still waited to be destroyed does not come back.
func TestInterruptedRebuild(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, dir string) string{
		"cancelled": func(t *testing.T, dir string) string {
			stop, cancel := context.WithCancel(t.Context())
			o := storetest.Options()
			o.Progress = func(db.Progress) { cancel() }
			if s, err := db.Open(stop, dir, o); err == nil {
				s.Close()
				t.Fatal("opened with a cancelled context")
			}
			return dir
		},
		"killed": func(t *testing.T, dir string) string {
			image := ""
			o := storetest.Options()
			o.Progress = func(db.Progress) { image = storetest.Copy(t, dir) }
			storetest.Crash(storetest.Open(t, dir, o))
			return image
		},
		"killed when it was open": func(t *testing.T, dir string) string {
			storetest.Crash(storetest.Open(t, dir, storetest.Options()))
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
			dir := s.Dir()
			kept, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
			storetest.Put(t, m, kept)
			storetest.Put(t, m, gone)
			storetest.OK(t, m.SetRef(t.Context(), "kept", kept, db.RefOptions{Pinned: true}))
			reader := storetest.Match(t, m, gone)
			storetest.Must(m.Delete(t.Context(), gone.Prefix(16)))(t)
			storetest.OK(t, s.Checkpoint(t.Context())) // into the index
			dir = storetest.Copy(t, dir)               // killed while somebody still reads what was deleted
			reader.Close()
			storetest.OK(t, os.RemoveAll(filepath.Join(dir, storetest.LogDir)))
			for range 2 {
				dir = interrupt(t, dir)
			}
			s = storetest.Open(t, dir, storetest.Options())
			m = storetest.Model(t, s, crashtest.Plain())
			storetest.Expect(t, m, kept, 64)
			storetest.Expect(t, m, gone, 0)
			if r, err := s.Ref("kept"); err != nil || !r.Pinned {
				t.Errorf("ref after an interrupted rebuild: %+v, %v", r, err)
			}
		})
	}
}

// A store suspends itself when its index is found damaged and cannot be rebuilt just now. It lets go of its files then, so that no
// Suspend or Close that comes later can make anything durable.

// suspendsItself has the index of w's store found damaged while segments can neither be opened nor mapped, and fails what also says.
func (w *crashRun) suspendsItself(t *testing.T, also func(crashfs.Op) error) {
	t.Helper()
	w.d.Before(func(op crashfs.Op) error {
		if (op.Kind == "map" || op.Kind == "open") && strings.HasPrefix(op.Name, storetest.SegmentsDir) {
			return vfs.PassingErrors[0]
		}
		if also != nil {
			return also(op)
		}
		return nil
	})
	losesIndex(t, w.s)
	w.d.Before(nil)
}

// losesIndex says that the index of a store is damaged, and waits until the store, which cannot rebuild it, has suspended itself.
func losesIndex(t *testing.T, s *db.Store) {
	t.Helper()
	storetest.DoubtIndex(s)
	var err error
	for deadline := time.Now().Add(time.Minute); !errors.Is(err, db.ErrSuspended) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_, err = s.Stats()
	}
	if !errors.Is(err, db.ErrSuspended) {
		t.Fatalf("not suspended: %v", err)
	}
}

func failSyncs(where string) func(crashfs.Op) error {
	return func(op crashfs.Op) error {
		if op.Kind == "sync" && strings.HasPrefix(op.Name, where) {
			return errDisk
		}
		return nil
	}
}

// A Close or a Suspend that reports success has made durable what was acknowledged.
func TestEndOfAStoreThatSuspendedItself(t *testing.T) {
	for _, end := range []string{"close", "suspend"} {
		w := crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.suspendsItself(t, nil)
		w.ends(t, end)
		w.cuts(t, 8)
	}
}

// ends has Close or Suspend report success, which the journal takes for a checkpoint, and then ends the process.
func (w *crashRun) ends(t *testing.T, how string) {
	t.Helper()
	if how == "close" {
		w.steps(t, crashOp{kind: "close"})
		w.d.Crash()
		return
	}
	storetest.OK(t, w.s.Suspend(t.Context()))
	copy(w.j.safe, w.j.have)
	w.d.Crash()
	w.kill()
}

// An fsync that failed when the store suspended itself is reported by Suspend and Close. After a Resume all is well.
func TestFailedSyncOfAStoreThatSuspendedItself(t *testing.T) {
	for _, where := range []string{storetest.SegmentsDir, storetest.LogDir} {
		w := crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.suspendsItself(t, failSyncs(where))
		if !storetest.Engine(w.s).Inside().Unsynced() {
			t.Fatal("no fsync failed")
		}
		for range 2 {
			if err := w.s.Suspend(t.Context()); !errors.Is(err, errDisk) {
				t.Errorf("%s: suspend: %v", where, err)
			}
		}
		storetest.OK(t, w.s.Resume(t.Context()))
		w.ends(t, "suspend")
		w.cuts(t, 4)

		w = crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.suspendsItself(t, failSyncs(where))
		if err := w.s.Close(); !errors.Is(err, errDisk) {
			t.Errorf("%s: close: %v", where, err)
		}
	}
}

// So is one that had failed before.
func TestPoisonedStoreThatSuspendedItself(t *testing.T) {
	for _, where := range []string{storetest.SegmentsDir, storetest.LogDir} {
		w := crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.d.Before(failSyncs(where))
		if err := w.s.Sync(t.Context()); !errors.Is(err, db.ErrPoisoned) {
			t.Fatalf("sync: %v", err)
		}
		w.suspendsItself(t, nil)
		if err := w.s.Close(); !errors.Is(err, db.ErrPoisoned) {
			t.Errorf("%s: close: %v", where, err)
		}
	}
}
