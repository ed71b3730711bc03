package db

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// What an fsync failed to write, of a compaction above all, whose originals go afterwards, is on the disk when the next process
// in the same boot has opened the store and acknowledges a put that rests on it. Until it is, nothing is acknowledged.
func TestOpenAfterAFailedSync(t *testing.T) {
	for first := 0; ; first++ {
		w := crashCase(t, crashMode{power: true})
		w.steps(t, putAll()...)
		w.steps(t, crashOp{kind: "delete", chat: 4, n: 50}, crashOp{kind: "reopen"})
		syncs := failBehind(w.d, first, func(op crashfs.Op) bool {
			return op.Kind == "sync" && strings.HasPrefix(op.Name, segmentsDir)
		}, diskFails)
		w.do(crashOp{kind: "compact"})
		if syncs.Load() <= int64(first) {
			break
		}
		w.kill()
		w.d.Before(func(op crashfs.Op) error {
			if op.Kind == "write" && strings.HasPrefix(op.Name, segmentsDir) {
				return errDisk
			}
			return nil
		})
		w.steps(t, crashOp{kind: "open"}) // and fails again
		w.d.Before(nil)
		if err := w.do(crashOp{kind: "put", chat: 4, n: 80}); !errors.Is(err, syscall.EIO) {
			t.Errorf("put on what could not be written again: %v", err)
		}
		w.kill()
		w.steps(t, crashOp{kind: "open"})
		if _, err := w.s.eng.fs.Stat(w.s.eng.path(unsyncedName)); err == nil {
			t.Error("an fsync had failed, and the next open did nothing about it")
		}
		w.steps(t, crashOp{kind: "put", chat: 4, n: 80}, crashOp{kind: "checkpoint"}, crashOp{kind: "sync"})
		w.d.Crash()
		w.kill()
		w.cuts(t, 4, "")
	}
}
