package db

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A folder that cannot be opened for want of file handles, when its names are to be synced, poisons nothing, because no fsync
// failed. What should have been durable is not acknowledged until it is.
func TestWantOfFilesToSyncAFolder(t *testing.T) {
	for _, where := range []string{walDir, segmentsDir, ""} {
		for _, o := range []crashOp{{kind: "sync"}, {kind: "put", chat: 4, n: 80}, {kind: "checkpoint"}, {kind: "delete", chat: 4, n: 50}} {
			if o.kind == "delete" && where == segmentsDir {
				continue // it rests on no segment
			}
			t.Run(fmt.Sprint(where, " ", o), func(t *testing.T) {
				w := crashCase(t, crashMode{power: true})
				w.steps(t, crashOp{kind: "put", chat: 0, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
				w.steps(t, crashOp{kind: "reopen"}, crashOp{kind: "put", chat: 2, n: 100})
				w = nextRun(t, w.dies(t), w.k, w.j)
				w.steps(t, crashOp{kind: "open"})
				failed := failBehind(w.d, 0, func(op crashfs.Op) bool {
					return op.Kind == "syncdir" && op.Name != "." && strings.HasPrefix(op.Name, where)
				}, func() error { return vfs.PassingErrors[0] })
				err := w.do(o)
				w.d.Before(nil)
				if failed.Load() == 0 || !errors.Is(err, vfs.ErrNotSynced) || errors.Is(err, ErrPoisoned) {
					t.Errorf("%d folders could not be opened: %v", failed.Load(), err)
				}
				if err := w.s.eng.poisoned(); err != nil || w.s.eng.unsynced() {
					t.Errorf("marked: %t, poisoned: %v", w.s.eng.unsynced(), err)
				}
				w.steps(t, o, crashOp{kind: "put", chat: 1, n: 90}, crashOp{kind: "sync"})
				w.d.Crash()
				w.kill()
				w.cuts(t, 8, "")
			})
		}
	}
}

// A folder that cannot be opened when index.db gets its new name is no failed fsync: that call fails, and the next tries again.
func TestFolderOfTheIndexCannotBeOpened(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "checkpoint"})
	failed := failBehind(w.d, 0, func(op crashfs.Op) bool { return op.Kind == "syncdir" && op.Name == "." },
		func() error { return vfs.PassingErrors[0] })
	_, err := w.s.Compact(ctx, CompactOptions{All: true})
	w.d.Before(nil)
	if failed.Load() == 0 || !errors.Is(err, vfs.ErrNotSynced) {
		t.Fatalf("compact: %d failed, %v", failed.Load(), err)
	}
	if err := w.s.eng.poisoned(); err != nil {
		t.Errorf("poisoned: %v", err)
	}
	w.steps(t, crashOp{kind: "put", chat: 4, n: 80})
	w.steps(t, crashOp{kind: "checkpoint"}, crashOp{kind: "put", chat: 3, n: 60})
	w.d.Crash()
	w.kill()
	w.cuts(t, 6, "")
}
