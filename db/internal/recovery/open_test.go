package recovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

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
				if err := storetest.Engine(w.s).Poisoned(); err != nil || storetest.Engine(w.s).Inside().Unsynced() {
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
