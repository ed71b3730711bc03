package db

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// The pages that an fsync failed to write need not stay in memory until the next open: what they held is gone then without a
// reboot, and the originals of a compaction are still there.
func TestOpenAfterAFailedSyncWhosePagesAreGone(t *testing.T) {
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
		w.d.Crash()
		w.kill()
		w.j.cut = true
		for seed := range uint64(6) {
			image, err := w.d.PowerCut(rand.New(rand.NewPCG(seed, 5)), newCrashDirs(t).Next())
			if err != nil {
				t.Fatal(err)
			}
			f, err := image.Create(filepath.Join(image.Dir(), unsyncedName)) // it is the same boot
			if err == nil {
				err = f.Close()
			} else if errors.Is(err, fs.ErrExist) {
				err = nil
			}
			if err != nil {
				t.Fatal(err)
			}
			x := &crashRun{d: image, k: w.k}
			if err := w.j.compare(x, false); err != nil {
				t.Errorf("sync %d, image %d: %v", first, seed, err)
			}
			x.kill()
		}
	}
}

// A store with a place that the disk cannot read is written to again: what is not in memory there is nowhere.
func TestOpenAfterAFailedSyncWithABadSector(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, putAll()...)
	w.kill()
	mark, err := w.d.Create(filepath.Join(w.d.Dir(), unsyncedName))
	if err != nil {
		t.Fatal(err)
	}
	mark.Close()
	bad := failBehind(w.d, 0, func(op crashfs.Op) bool {
		return op.Kind == "read" && strings.HasPrefix(op.Name, segmentsDir) && op.Len >= 4096
	}, diskFails)
	w.steps(t, crashOp{kind: "open"}, crashOp{kind: "put", chat: 4, n: 80}, crashOp{kind: "checkpoint"}, crashOp{kind: "sync"})
	if _, err := w.s.eng.fs.Stat(w.s.eng.path(unsyncedName)); bad.Load() == 0 || err == nil {
		t.Errorf("%d reads failed, and the mark: %v", bad.Load(), err)
	}
}
