package llamaserver

import (
	"context"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
)

// seen is what tells a server from one that somebody else has started in its place.
type seen struct {
	props api.Props
	at    string // the socket at which it listens, if that can be seen
	task  int    // the last one that began in a slot: the numbers of a server grow
}

func seenOf(p api.Props, at string) seen {
	p.Sleeping = false
	return seen{props: p, at: at}
}

// at is where the server of somebody else listens. Those of a router have no place that the front knows.
func (s *served) at() string {
	if s.front.o.Attach == "" {
		return ""
	}
	return proc.Listener(s.front.base)
}

// replaced reports whether a server that the front has not started is another one now: another model, or started again, maybe with other arguments. All
// is looked at anew then. Of a router, which starts its servers with the same arguments, the slots are forgotten, and all is if their files changed.
func (s *served) replaced(ctx context.Context) bool {
	s.mu.Lock()
	before := s.seen // before the server is asked: others ask, too, and may hear of later tasks
	s.mu.Unlock()
	p, err := s.api.Props(ctx)
	if err != nil {
		return false // it is not there: who asks it something hears of that
	}
	list, err := s.api.Slots(ctx)
	if err != nil {
		return false
	}
	now := seenOf(p, s.at())
	for _, st := range list {
		now.task = max(now.task, st.Task())
	}
	s.mu.Lock()
	again := now.task < before.task
	if s.seen.task = max(s.seen.task, now.task); again {
		s.seen.task = now.task
		for _, sl := range s.slots {
			if !sl.busy {
				sl.forget()
			}
		}
	}
	s.mu.Unlock()
	others := again && s.loaded.Restarted()
	if before.props == now.props && (before.at == now.at || before.at == "" || now.at == "") && !(again && s.front.o.Attach != "") && !others {
		return false
	}
	if s.gone.Load() { // another request saw it first
		return true
	}
	s.log.Info("the server is another one now", "model", p.ModelPath)
	if !again {
		s.loaded.Restarted()
	}
	s.front.reset()
	return true
}
