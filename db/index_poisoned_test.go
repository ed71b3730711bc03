package db

import (
	"errors"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// After an fsync of the index's folder has failed, everything that writes says so, also what only the log would hold, as do Stats
// and Close.
func TestFailedSyncOfTheIndexPoisons(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "checkpoint"}, crashOp{kind: "ref", chat: 0, name: "r", n: 60}, crashOp{kind: "delete", chat: 4, n: 60})
	failBehind(w.d, 0, func(op crashfs.Op) bool { return op.Kind == "syncdir" && op.Name == "." }, diskFails)
	_, err := w.s.Compact(ctx, CompactOptions{All: true})
	w.d.Before(nil)
	if w.s.eng.ix.Err() == nil {
		t.Fatalf("no fsync of the index failed: %v", err)
	}
	another := plain()
	another.Name = "another"
	for what, err := range map[string]error{
		"compact":    err,
		"put":        w.do(crashOp{kind: "put", chat: 4, n: 80}),
		"delete":     w.do(crashOp{kind: "delete", chat: 3, n: 80}),
		"checkpoint": w.s.Checkpoint(ctx),
		"sync":       w.s.Sync(ctx),
		"model":      second(w.s.Register(ctx, another)),
		"unref":      w.do(crashOp{kind: "unref", name: "r"}),
		"retire":     w.s.Retire(ctx, w.model(2).Fingerprint()),
	} {
		if !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if st, err := w.s.Stats(); err != nil || !st.Poisoned {
		t.Errorf("stats: poisoned %t, %v", st.Poisoned, err)
	}
	if err := w.s.Close(); !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
}
