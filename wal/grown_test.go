package wal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// On a full disk the small state grows with what Append still takes, and the log is rotated then: whatever comes of that,
// what AppendReserved was promised is left afterwards, again and again.
func TestStateThatGrewLeavesTheReserve(t *testing.T) {
	const step = 64 << 10
	for i := range 60 {
		first, frames := i%3*step/2, i/3*4
		t.Run(fmt.Sprint(first, " bytes, ", frames, " frames"), func(t *testing.T) {
			m := newMemFS()
			o := memOptions(m)
			o.PreallocBytes = step
			state := strings.Repeat("s", first)
			log := must[*Log](t)(Create(o, 1, 1, []byte(state)))
			for range frames {
				must[uint64](t)(log.Append(2, make([]byte, 1000)))
			}
			m.limit = m.used()
			for round := range 4 {
				for {
					frame := strings.Repeat("f", 1000)
					if _, err := log.Append(2, []byte(frame)); errors.Is(err, vfs.ErrNoSpace) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
					state += frame
				}
				_, _, err := log.Rotate(text(state))
				if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
					t.Fatal(err)
				}
				if _, rerr := log.AppendReserved(3, make([]byte, step/3)); rerr != nil {
					t.Fatalf("round %d, a state of %d bytes: %v; rotation: %v", round, len(state), rerr, err)
				}
				if err := log.Remove(log.FileID()); err != nil { // as a checkpoint does
					t.Fatal(err)
				}
				m.limit = max(m.limit, m.used()+step) // what was evicted came back
			}
		})
	}
}
