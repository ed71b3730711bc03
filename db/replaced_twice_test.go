package db

import (
	"fmt"
	"testing"
)

// What was durable stays when a power cut takes all of several records that replaced it one after the other, though the frames
// that say so are there; with and without the index.
func TestReplacedTwiceByWhatAPowerCutTook(t *testing.T) {
	for _, ends := range [][]int{{45, 46}, {45, 46, 47}, {45, 46, 47, 48}, {45, 47, 70}, {45, 47, 48, 85}} {
		for _, chat := range []int{1, 2} { // with a window, and without
			for _, without := range []string{"", indexName} {
				t.Run(fmt.Sprint(ends, chat, without), func(t *testing.T) {
					w := crashCase(t, crashMode{})
					w.steps(t, crashOp{kind: "put", chat: chat, n: ends[0]}, crashOp{kind: "checkpoint"})
					for _, n := range ends[1:] {
						w.steps(t, crashOp{kind: "put", chat: chat, n: n})
					}
					if err := w.s.eng.wal.Sync(w.s.eng.wal.LastLSN()); err != nil {
						t.Fatal(err)
					}
					w.d.Crash()
					w.kill()
					w.cuts(t, 8, without)
				})
			}
		}
	}
}
