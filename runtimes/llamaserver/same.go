package llamaserver

import (
	"context"
	"os"
	"time"
)

// seen is what tells a server from one that somebody else has started in its place.
type seen struct {
	props props
	size  int64 // of the model's file
	mod   time.Time
	task  int // the last one that began in a slot: the numbers of a server grow
}

func seenOf(p props) seen {
	p.Sleeping = false
	out := seen{props: p}
	if info, err := os.Stat(p.ModelPath); err == nil {
		out.size, out.mod = info.Size(), info.ModTime()
	}
	return out
}

// replaced reports whether a server that the front has not started is another one now. All is looked at anew then. Of one that was only started
// again, the slots are forgotten.
func (s *served) replaced(ctx context.Context) bool {
	p, err := s.api.props(ctx)
	if err != nil {
		return false // it is not there: who asks it something hears of that
	}
	list, err := s.api.slots(ctx)
	if err != nil {
		return false
	}
	now := seenOf(p)
	for _, st := range list {
		now.task = max(now.task, st.Task)
	}
	s.mu.Lock()
	before := s.seen
	s.seen.task = now.task
	if now.task < before.task { // it was started again
		for _, sl := range s.slots {
			if !sl.busy {
				sl.forget()
			}
		}
	}
	s.mu.Unlock()
	if before.props == now.props && before.size == now.size && before.mod.Equal(now.mod) {
		return false
	}
	s.log.Info("the server is another one now", "model", p.ModelPath)
	s.front.reset()
	return true
}
