package read

import (
	"strings"
	"sync/atomic"
	"testing"
)

// A panic in whoever's part of the work is the caller's, who can recover, once nobody is at work any more.
func TestCrewPanics(t *testing.T) {
	for _, at := range []int{0, 1, 99} {
		c := Crew{helpers: make(chan struct{}, 2)}
		var working atomic.Int64
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(toText(p), "broken") || working.Load() != 0 {
					t.Errorf("at %d: recovered %v, and %d are at work", at, p, working.Load())
				}
			}()
			c.run(100, func() (do func(int) bool, end func()) {
				working.Add(1)
				return func(i int) bool {
					if i == at {
						panic("broken")
					}
					return true
				}, func() { working.Add(-1) }
			})
		}()
		if len(c.helpers) != 0 {
			t.Errorf("%d helpers are taken", len(c.helpers))
		}
	}
}

func toText(p any) string { s, _ := p.(string); return s }
