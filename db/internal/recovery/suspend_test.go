package recovery_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

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
