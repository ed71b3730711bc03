package db

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Who is told that there is no such model, or ref, may rely on it: what took it is durable then, or that is the error.
func TestNotFoundIsDurable(t *testing.T) {
	for _, kind := range []string{"retire", "unref"} {
		w := crashCase(t, crashMode{power: true})
		w.steps(t, crashOp{kind: "put", chat: 0, n: 70}, crashOp{kind: "ref", chat: 0, n: 60, name: "a"})
		take := func() error {
			if kind == "unref" {
				return w.s.DeleteRef(ctx, "a")
			}
			return w.s.Retire(ctx, w.model(0).Fingerprint())
		}
		w.d.Before(func(op crashfs.Op) error {
			if op.Kind == "sync" && strings.HasPrefix(op.Name, walDir) {
				return errDisk
			}
			return nil
		})
		if err := take(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %v", kind, err)
		}
		if err := take(); !errors.Is(err, syscall.EIO) {
			t.Errorf("second %s: %v, though the first one is not durable", kind, err)
		}
	}
}
