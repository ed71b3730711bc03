package llamaserver

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// A request waits for a model that is being prepared: at most five seconds from the server's first answer, and not at all once waiting does not pay, or its client
// has gone. While the server loads the model it waits as long as that takes.
func TestHeld(t *testing.T) {
	begin := func(answered bool) *served {
		s := &served{hold: newHold()}
		if answered {
			s.hold.meets()
		}
		return s
	}
	after := func(d time.Duration, do func()) { time.AfterFunc(d, do) }
	for _, c := range []struct {
		name     string
		answered bool
		then     func(s *served, leave func())
		waits    time.Duration
		leaves   bool
	}{
		{"nothing happens", true, func(s *served, leave func()) {}, heldTime, false},
		{"it is prepared", true, func(s *served, leave func()) { after(time.Second, func() { close(s.hold.prepared) }) }, time.Second, false},
		{"waiting does not pay", true, func(s *served, leave func()) { after(time.Second, func() { s.hold.release(request.PassUnhashed) }) }, time.Second, false},
		{"nothing is stored", true, func(s *served, leave func()) { after(time.Second/2, s.hold.shortens) }, briefTime, false},
		{"it is known late that nothing is stored", true, func(s *served, leave func()) { after(2*time.Second, s.hold.shortens) }, 2 * time.Second, false},
		{"the client goes", true, func(s *served, leave func()) { after(time.Second, leave) }, time.Second, true},
		{"a long load", false, func(s *served, leave func()) {
			after(time.Hour, func() { s.hold.meets() })
			after(time.Hour+time.Second, func() { close(s.hold.prepared) })
		}, time.Hour + time.Second, false},
		{"a long load of what is not prepared", false, func(s *served, leave func()) {
			after(time.Hour, func() { s.hold.meets() })
		}, time.Hour + heldTime, false},
		{"the client goes while it loads", false, func(s *served, leave func()) { after(time.Second, leave) }, time.Second, true},
		{"the server says something else", false, func(s *served, leave func()) {
			after(time.Second, func() { s.strange(&api.StatusError{Status: http.StatusInternalServerError}) })
		}, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				s := begin(c.answered)
				c.then(s, leave)
				start := time.Now()
				stays := s.hold.patient(ctx)
				if took := time.Since(start); took != c.waits || stays == c.leaves {
					t.Errorf("it waited for %v, and the client is there: %t; expected %v, %t", took, stays, c.waits, !c.leaves)
				}
			})
		})
	}
}
