package db

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// After a failed fsync, what the next process cannot read just now, and so cannot write once more, is not taken for written: that
// process writes nothing, and the one after it writes it.
func TestRewriteOfWhatCannotBeReadJustNow(t *testing.T) {
	for _, where := range []string{walDir, segmentsDir} {
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
					if op.Kind == "write" && strings.HasPrefix(op.Name, segmentsDir) {
						writes++
					}
					if op.Kind == "read" && strings.HasPrefix(op.Name, where) && (where == walDir && writes > 0 || where == segmentsDir && op.Len >= 4096) {
						return why
					}
					return nil
				})
				w.steps(t, crashOp{kind: "open"})
				if !w.s.eng.unsynced() {
					t.Error("the mark is gone")
				}
				if err := w.do(second); !errors.Is(err, ErrPoisoned) || !errors.Is(err, why) {
					t.Errorf("a put on what was not written again: %v", err)
				}
				w.d.Before(nil)
				w.kill()
				w.steps(t, crashOp{kind: "open"})
				if w.s.eng.unsynced() {
					t.Error("what was not synced was not written again")
				}
				w.steps(t, second, crashOp{kind: "put", chat: 1, n: 90})
				w.d.Crash()
				w.kill()
				w.cuts(t, 8, "")
			})
		}
	}
}
