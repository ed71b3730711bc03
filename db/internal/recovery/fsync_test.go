package recovery_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// failBehind has the disk answer with what fail says to each call that match takes, behind the first n of them. It returns
// their number so far, those that failed included. Calls come from several goroutines.
func failBehind(d *crashfs.Disk, n int, match func(crashfs.Op) bool, fail func() error) (calls *atomic.Int64) {
	calls = new(atomic.Int64)
	d.Before(func(op crashfs.Op) error {
		if match(op) && calls.Add(1) > int64(n) {
			return fail()
		}
		return nil
	})
	return calls
}

func diskFails() error { return errDisk }

// The pages that an fsync failed to write need not stay in memory until the next open: what they held is gone then without a
// reboot, and the originals of a compaction are still there.
func TestOpenAfterAFailedSyncWhosePagesAreGone(t *testing.T) {
	for first := 0; ; first++ {
		w := crashCase(t, crashMode{power: true})
		w.steps(t, putAll()...)
		w.steps(t, crashOp{kind: "delete", chat: 4, n: 50}, crashOp{kind: "reopen"})
		syncs := failBehind(w.d, first, func(op crashfs.Op) bool {
			return op.Kind == "sync" && strings.HasPrefix(op.Name, storetest.SegmentsDir)
		}, diskFails)
		w.do(crashOp{kind: "compact"})
		if syncs.Load() <= int64(first) {
			break
		}
		w.d.Crash()
		w.kill()
		w.j.cut = true
		for seed := range uint64(6) {
			image := storetest.Must(w.d.PowerCut(rand.New(rand.NewPCG(seed, 5)), crashtest.NewDirs(t).Next()))(t)
			f, err := image.Create(filepath.Join(image.Dir(), storetest.UnsyncedFile)) // it is the same boot
			if err == nil {
				err = f.Close()
			} else if errors.Is(err, fs.ErrExist) {
				err = nil
			}
			storetest.OK(t, err)
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
	mark := storetest.Must(w.d.Create(filepath.Join(w.d.Dir(), storetest.UnsyncedFile)))(t)
	mark.Close()
	bad := failBehind(w.d, 0, func(op crashfs.Op) bool {
		return op.Kind == "read" && strings.HasPrefix(op.Name, storetest.SegmentsDir) && op.Len >= 4096
	}, diskFails)
	w.steps(t, crashOp{kind: "open"}, crashOp{kind: "put", chat: 4, n: 80}, crashOp{kind: "checkpoint"}, crashOp{kind: "sync"})
	if _, err := storetest.Engine(w.s).FS.Stat(storetest.Engine(w.s).Path(storetest.UnsyncedFile)); bad.Load() == 0 || err == nil {
		t.Errorf("%d reads failed, and the mark: %v", bad.Load(), err)
	}
}

// After a failed fsync, what the next process cannot read just now, and so cannot write once more, is not taken for written: that
// process writes nothing, and the one after it writes it.
func TestRewriteOfWhatCannotBeReadJustNow(t *testing.T) {
	for _, where := range []string{storetest.LogDir, storetest.SegmentsDir} {
		for _, why := range vfs.PassingErrors {
			t.Run(fmt.Sprint(where, " ", why), func(t *testing.T) {
				w := crashCase(t, crashMode{power: true})
				w.steps(t, crashOp{kind: "put", chat: 0, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
				failBehind(w.d, 0, func(op crashfs.Op) bool { return op.Kind == "sync" && strings.HasPrefix(op.Name, where) }, diskFails)
				second := crashOp{kind: "put", chat: 2, n: 100}
				if err := w.do(second); err == nil {
					t.Fatal("acknowledged though its fsync failed")
				}
				w.kill()
				writes := 0
				w.d.Before(func(op crashfs.Op) error { // only what is read to be written: the log is read before, segments' headers are short
					if op.Kind == "write" && strings.HasPrefix(op.Name, storetest.SegmentsDir) {
						writes++
					}
					if op.Kind == "read" && strings.HasPrefix(op.Name, where) && (where == storetest.LogDir && writes > 0 || where == storetest.SegmentsDir && op.Len >= 4096) {
						return why
					}
					return nil
				})
				w.steps(t, crashOp{kind: "open"})
				if !storetest.Engine(w.s).Inside().Unsynced() {
					t.Error("the mark is gone")
				}
				if err := w.do(second); !errors.Is(err, db.ErrPoisoned) || !errors.Is(err, why) {
					t.Errorf("a put on what was not written again: %v", err)
				}
				w.d.Before(nil)
				w.kill()
				w.steps(t, crashOp{kind: "open"})
				if storetest.Engine(w.s).Inside().Unsynced() {
					t.Error("what was not synced was not written again")
				}
				w.steps(t, second, crashOp{kind: "put", chat: 1, n: 90})
				w.d.Crash()
				w.kill()
				w.cuts(t, 8)
			})
		}
	}
}
