package recovery_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Cases that the random runs found, by themselves.

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
			if err := storetest.Engine(w.s).Poisoned(); !errors.Is(err, db.ErrPoisoned) {
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
	image := storetest.Must(crashtest.CutAndReboot(w.d, rand.New(rand.NewPCG(1, 5)), crashtest.NewDirs(t)))(t)
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
