package recovery_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
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

// However a disk that cannot sync ends the first opens of a store, and whatever a power cut leaves of them, the next one opens it.
func TestFirstOpensOnADiskThatCannotSync(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	for first := 0; ; first++ {
		d := crashtest.NewDisk(dirs.Next())
		syncs := failBehind(d, first, func(op crashfs.Op) bool {
			return op.Kind == "sync" || op.Kind == "syncdir"
		}, diskFails)
		for range 2 {
			w := &crashRun{d: d, k: crashModes[0]}
			w.open()
			w.kill()
		}
		for seed := range uint64(12) {
			image := storetest.Must(d.PowerCut(rand.New(rand.NewPCG(seed, 3)), dirs.Next()))(t)
			x := &crashRun{d: image, k: crashModes[0]}
			if err := x.open(); err != nil {
				t.Errorf("%d syncs were done, image %d: %v", first, seed, err)
			}
			x.kill()
			os.RemoveAll(image.Dir())
		}
		os.RemoveAll(d.Dir())
		if syncs.Load() <= int64(first) {
			break
		}
	}
}

// A folder that cannot be opened for want of file handles, when its names are to be synced, poisons nothing, because no fsync
// failed. What should have been durable is not acknowledged until it is.
func TestWantOfFilesToSyncAFolder(t *testing.T) {
	for _, where := range []string{storetest.LogDir, storetest.SegmentsDir, ""} {
		for _, o := range []crashOp{{kind: "sync"}, {kind: "put", chat: 4, n: 80}, {kind: "checkpoint"}, {kind: "delete", chat: 4, n: 50}} {
			if o.kind == "delete" && where == storetest.SegmentsDir {
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
				if failed.Load() == 0 || !errors.Is(err, vfs.ErrNotSynced) || errors.Is(err, db.ErrPoisoned) {
					t.Errorf("%d folders could not be opened: %v", failed.Load(), err)
				}
				if err := storetest.Engine(w.s).Ledger.Poisoned(); err != nil || storetest.Engine(w.s).Inside().Unsynced() {
					t.Errorf("marked: %t, poisoned: %v", storetest.Engine(w.s).Inside().Unsynced(), err)
				}
				w.steps(t, o, crashOp{kind: "put", chat: 1, n: 90}, crashOp{kind: "sync"})
				w.d.Crash()
				w.kill()
				w.cuts(t, 8)
			})
		}
	}
}

// After a sync has failed, of whatever, of the index's folder too, nothing is written any more, not even what only the log would hold; what
// is stored can be read, after a compaction that failed as well; and Stats and Close say what happened.
func TestFailedSync(t *testing.T) {
	for _, where := range []string{storetest.SegmentsDir, ""} {
		for first := 0; ; first++ {
			w := crashCase(t, crashMode{})
			w.steps(t, putAll()...)
			w.steps(t, crashOp{kind: "delete", chat: 4, n: 50}, crashOp{kind: "checkpoint"}, crashOp{kind: "put", chat: 4, n: 70})
			w.steps(t, crashOp{kind: "ref", chat: 0, name: "r", n: 60})
			syncs := failBehind(w.d, first, func(op crashfs.Op) bool {
				return (op.Kind == "sync" || op.Kind == "syncdir") && strings.HasPrefix(op.Name, where)
			}, diskFails)
			err := w.do(crashOp{kind: "compact"})
			if syncs.Load() <= int64(first) {
				break
			}
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("compact: %v", err)
			}
			if err := storetest.Engine(w.s).Ledger.Poisoned(); !errors.Is(err, db.ErrPoisoned) {
				t.Errorf("%q, sync %d: poisoned: %v", where, first, err)
			}
			for c, x := range crashChats() {
				if n, err := x.restore(w.model(c)); err != nil || n < w.j.have[c] {
					t.Errorf("%q, sync %d: chat %d: %d tokens, %v", where, first, c, n, err)
				}
			}
			for what, err := range map[string]error{
				"ref":        w.do(crashOp{kind: "ref", chat: 0, name: "a", n: 60}),
				"unref":      w.do(crashOp{kind: "unref", name: "r"}),
				"put":        w.do(crashOp{kind: "put", chat: 4, n: 80}),
				"delete":     w.do(crashOp{kind: "delete", chat: 0, n: 60}),
				"model":      second(w.s.Register(t.Context(), crashtest.Model("other"))),
				"retire":     w.s.Retire(t.Context(), w.model(2).Fingerprint()),
				"checkpoint": w.s.Checkpoint(t.Context()),
				"sync":       w.s.Sync(t.Context()),
			} {
				if !errors.Is(err, syscall.EIO) || !errors.Is(err, db.ErrPoisoned) {
					t.Errorf("%q, sync %d: %s: %v", where, first, what, err)
				}
			}
			if st, err := w.s.Stats(); err != nil || !st.Poisoned {
				t.Errorf("%q, sync %d: stats: poisoned %t, %v", where, first, st.Poisoned, err)
			}
			if err := w.s.Close(); !errors.Is(err, syscall.EIO) || !errors.Is(err, db.ErrPoisoned) {
				t.Errorf("close: %v", err)
			}
		}
	}
}

// A read that fails for want of files or memory says nothing about the bytes: Open fails, and gives up nothing.
func TestOpenGivesNothingUpForWantOfFiles(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, putAll()...)
	w.j.cut = true
	image := storetest.Must(crashtest.Cut(w.d, rand.New(rand.NewPCG(1, 5)), crashtest.NewDirs(t)))(t)
	image.Before(func(op crashfs.Op) error {
		if op.Kind == "map" && strings.HasPrefix(op.Name, storetest.SegmentsDir) {
			return vfs.PassingErrors[0]
		}
		return nil
	})
	x := &crashRun{d: image, k: w.k}
	if err := x.open(); !errors.Is(err, vfs.PassingErrors[0]) {
		t.Fatalf("open without files: %v", err)
	}
	x.kill()
	image.Before(nil)
	x = &crashRun{d: image, k: w.k}
	defer x.kill()
	storetest.OK(t, w.j.compare(x, false))
}
