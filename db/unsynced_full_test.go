package db

import (
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A disk on which an fsync fails for want of space has none for another file: the next open hears of it nevertheless.
func TestFailedSyncOnFullDiskIsMarked(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "reopen"}, crashOp{kind: "delete", chat: 4, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "sync" && strings.HasPrefix(op.Name, segmentsDir) || op.Kind == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	if err := w.do(crashOp{kind: "checkpoint"}); err == nil || w.s.eng.set.Err() == nil {
		t.Fatalf("checkpoint: %v", err)
	}
	if !w.s.eng.unsynced() {
		t.Error("the next open will not know that an fsync failed")
	}
	w.d.Before(nil)
	w.d.Crash()
	w.kill()
	image, err := w.d.Kill(newCrashDirs(t).next())
	if err != nil {
		t.Fatal(err)
	}
	x := &crashRun{d: image, k: w.k, j: w.j}
	t.Cleanup(x.kill)
	x.steps(t, crashOp{kind: "open"})
	if x.s.eng.unsynced() {
		t.Error("what was not synced was not written again")
	}
	x.cuts(t, 12, "")
}
