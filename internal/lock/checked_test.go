//go:build lockorder

package lock

import (
	"strings"
	"testing"
)

// Locks are taken from the top of the table to its bottom. What never waits, and what another goroutine has, is no matter.
func TestOrder(t *testing.T) {
	var outer, twin Mutex[Checkpoint]
	var inner RWMutex[Catalog]
	panics := func(what string, do func()) {
		t.Helper()
		defer func() {
			t.Helper()
			if s, _ := recover().(string); !strings.HasPrefix(s, "lock order: ") {
				t.Errorf("%s: %q", what, s)
			}
		}()
		do()
	}
	outer.Lock()
	inner.RLock()
	inner.RUnlock()
	inner.Lock()
	panics("the same lock again", inner.RLock)
	panics("an outer one", twin.Lock)
	if !twin.TryLock() {
		t.Error("a lock that nobody has")
	}
	twin.Unlock()
	inner.Unlock()
	panics("another of the same place", twin.Lock)
	outer.Unlock()

	// A lock that another goroutine gives back is forgotten.
	outer.Lock()
	done := make(chan bool)
	go func() {
		twin.Lock()
		outer.Unlock()
		twin.Unlock()
		close(done)
	}()
	<-done
	outer.Lock()
	outer.Unlock()
}
