package db

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Two processes, one after the other, die between the renaming of a log file and the sync of its folder; a power cut then keeps the
// second name and not the first. Nothing was in that file: the log has no hole.
func TestLogNameLostBeforeAnother(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, crashOp{kind: "put", chat: 0, n: len(crashChats()[0].p.Tokens)})
	dies := func(w *crashRun, o crashOp) *crashfs.Disk {
		var named atomic.Bool
		w.d.Before(func(op crashfs.Op) error {
			if named.Load() {
				return errDisk
			}
			if op.Kind == "rename" && strings.HasPrefix(op.Name, walDir) {
				named.Store(true)
			}
			return nil
		})
		if err := w.do(o); err == nil {
			t.Fatal("the disk did not fail")
		}
		return w.dies(t)
	}
	next := nextRun(t, dies(w, crashOp{kind: "checkpoint"}), w.k, newCrashJournal(w.k))
	next.steps(t, crashOp{kind: "open"})
	dies(next, crashOp{kind: "put", chat: 2, n: 60})
	dirs := newCrashDirs(t)
	for seed := range uint64(100) {
		image, err := crashtest.CutAndReboot(next.d, rand.New(rand.NewPCG(seed, 5)), dirs)
		if err != nil {
			t.Fatal(err)
		}
		names, _ := image.List(filepath.Join(image.Dir(), walDir))
		last := &crashRun{d: image, k: w.k, j: newCrashJournal(w.k)}
		if err := last.do(crashOp{kind: "open"}); err != nil {
			t.Fatal(seed, names, err)
		}
		rep, err := last.s.Verify(ctx, VerifyOptions{})
		doubts := last.s.eng.doubts
		last.kill()
		if err != nil || len(rep.Damage) > 0 || len(doubts) > 0 {
			t.Fatalf("cut %d: %v: damage %v, doubts %v, %v", seed, names, rep.Damage, doubts, err)
		}
	}
}
