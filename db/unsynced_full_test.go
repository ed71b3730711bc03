package db

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Where no file can be made when an fsync fails, because the disk is full or the process has no file handle left, the next open
// hears of it nevertheless.
func TestFailedSyncIsMarkedWithoutAFile(t *testing.T) {
	for _, why := range []struct{ sync, create error }{{syscall.ENOSPC, syscall.ENOSPC}, {errDisk, vfs.PassingErrors[0]}} {
		t.Run(fmt.Sprint(why.create), func(t *testing.T) { markedWithoutAFile(t, why.sync, why.create) })
	}
}

func markedWithoutAFile(t *testing.T, sync, create error) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "reopen"}, crashOp{kind: "delete", chat: 4, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
	w.d.Before(func(op crashfs.Op) error {
		switch {
		case op.Kind == "sync" && strings.HasPrefix(op.Name, segmentsDir):
			return sync
		case op.Kind == "create":
			return create
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
	x := nextRun(t, w.dies(t), w.k, w.j)
	x.steps(t, crashOp{kind: "open"})
	if x.s.eng.unsynced() {
		t.Error("what was not synced was not written again")
	}
	x.cuts(t, 12, "")
}
