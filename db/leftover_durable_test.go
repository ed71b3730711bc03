package db

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// What a killed process wrote and had not synced, segments that it had just sealed among it, is durable when the next one
// acknowledges a put that rests on it, a Sync or a checkpoint.
func TestWhatAKilledProcessWroteIsSynced(t *testing.T) {
	long := len(crashChats()[4].p.Tokens)
	for _, c := range []struct {
		k            crashMode
		killed, next []crashOp
	}{
		{crashMode{power: true}, []crashOp{{kind: "put", chat: 4, n: 70}}, []crashOp{{kind: "put", chat: 4, n: 70}}},
		{crashMode{power: true}, []crashOp{{kind: "put", chat: 4, n: 70}}, []crashOp{{kind: "put", chat: 4, n: long}}},
		{crashMode{}, append(putAll(), crashOp{kind: "checkpoint"}), []crashOp{{kind: "sync"}}},
		{crashMode{}, append(putAll(), crashOp{kind: "checkpoint"}), []crashOp{{kind: "checkpoint"}}},
		{crashMode{}, append(putAll(), crashOp{kind: "close"}), []crashOp{{kind: "checkpoint"}}},
	} {
		t.Run(fmt.Sprintf("%v, %v", c.k, c.next), func(t *testing.T) {
			for first := 0; ; first++ {
				w := crashCase(t, c.k)
				w.steps(t, crashOp{kind: "put", chat: 0, n: 50})
				failBehind(w.d, first, func(op crashfs.Op) bool {
					return op.Kind == "sync" && (strings.HasPrefix(op.Name, segmentsDir) || strings.HasPrefix(op.Name, walDir))
				}, func() error { w.d.Crash(); return nil })
				for _, o := range c.killed {
					if w.steps(t, o); w.d.Crashed() {
						break
					}
				}
				if !w.d.Crashed() {
					break
				}
				w.kill()
				image, err := w.d.Kill(newCrashDirs(t).Next())
				if err != nil {
					t.Fatal(err)
				}
				next := nextRun(t, image, c.k, newCrashJournal(c.k))
				next.steps(t, crashOp{kind: "open"})
				next.steps(t, c.next...)
				image.Crash()
				next.kill()
				next.cuts(t, 6, []string{"", indexName}[first%2])
			}
		})
	}
}
