package db

import (
	"errors"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A store that a Suspend left with an error is suspended. So long as that stands, another Suspend and Close do not say that all is
// well; after a Resume it is.
func TestSuspendThatFailed(t *testing.T) {
	fails := map[string]func(crashfs.Op) error{
		"an fsync": failSyncs(segmentsDir),
		"the next log file": func(op crashfs.Op) error { // before anything is synced
			if op.Kind == "rename" && strings.HasPrefix(op.Name, walDir) {
				return errDisk
			}
			return nil
		},
	}
	for what, fail := range fails {
		for _, resumes := range []bool{false, true} {
			w := crashCase(t, crashMode{})
			w.steps(t, putAll()...)
			w.d.Before(fail)
			err := w.s.Suspend(ctx)
			w.d.Before(nil)
			if !errors.Is(err, errDisk) {
				t.Errorf("%s: suspend: %v", what, err)
				continue
			}
			if err := w.s.Suspend(ctx); !errors.Is(err, errDisk) {
				t.Errorf("%s: suspend again: %v", what, err)
			}
			if resumes {
				if err := w.s.Resume(ctx); err != nil {
					t.Fatal(err)
				}
				w.suspends(t)
			} else if err := w.s.Close(); !errors.Is(err, errDisk) {
				t.Errorf("%s: close: %v", what, err)
			}
			w.d.Crash()
			w.kill()
			w.cuts(t, 4, "")
		}
	}
}
