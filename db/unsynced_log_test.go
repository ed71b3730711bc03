package db

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Frames that an fsync failed to write are on the disk before the next process acknowledges what comes behind them, also
// where it cannot write the index.
func TestLogAfterAFailedSync(t *testing.T) {
	for _, without := range []string{"", indexName} {
		for _, second := range []crashOp{{kind: "put", chat: 2, n: 100}, {kind: "extend", chat: 4, n: 90}, {kind: "delete", chat: 4, n: 60}} {
			t.Run(fmt.Sprint(second, without), func(t *testing.T) {
				w := crashCase(t, crashMode{power: true})
				w.steps(t, crashOp{kind: "put", chat: 0, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
				w.d.Before(func(op crashfs.Op) error {
					if op.Kind == "sync" && strings.HasPrefix(op.Name, walDir) {
						return errDisk
					}
					return nil
				})
				if err := w.do(second); err == nil {
					t.Fatal("acknowledged though its fsync failed")
				}
				w.kill()
				w.d.Before(func(op crashfs.Op) error {
					if op.Kind == "rename" && strings.HasPrefix(op.Name, indexName) {
						return errDisk
					}
					return nil
				})
				w.steps(t, crashOp{kind: "open"}, second, crashOp{kind: "put", chat: 1, n: 90})
				w.d.Crash()
				w.kill()
				w.cuts(t, 6, without)
			})
		}
	}
}
