package llamaserver

import (
	"context"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// busyElsewhere reports whether requests are at work whose slots the front did not choose.
func (s *served) busyElsewhere() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.foreign > 0
}

// avoid exchanges a leased slot at which somebody else is at work for an idle one, if there is one. The caller has the turn.
func (s *served) avoid(ctx context.Context, sl *slot) {
	list, err := s.api.Slots(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	working := map[int]bool{}
	for _, st := range list {
		working[st.ID] = st.Processing
	}
	s.believe(list, sl)
	if !working[sl.id] {
		return
	}
	sl.forget()
	for _, other := range s.slots {
		if !other.busy && other.id < s.usable && !working[other.id] {
			*sl, *other = *other, *sl
			sl.busy, other.busy, sl.used = true, false, other.used
			s.slots[sl.id], s.slots[other.id] = sl, other
			return
		}
	}
}

// taken reports whether somebody else works in an idle slot, which is forgotten then.
func (s *served) taken(ctx context.Context, sl *slot) bool {
	list, err := s.api.Slots(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range list {
		if err == nil && st.ID == sl.id && st.Processing {
			sl.forget()
			return true
		}
	}
	return false
}

// passThrough has a request work in whichever slot the server chooses. What only slots have is saved before, since it may be lost, and since the request
// may soil them.
func (s *served) passThrough(ctx context.Context, x *exchange, soils bool, scope string, apart, forward func()) {
	if s.take(ctx) != nil {
		return
	}
	s.saveOthers(ctx, nil)
	apart()
	if soils {
		defer s.loaded.Soils()()
	}
	s.mu.Lock()
	s.foreign++
	s.passes(scope, 1)
	s.passages++
	for _, sl := range s.slots {
		if !sl.busy {
			sl.forget()
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward()
	}()
	select { // until the request is in a slot, as far as one can tell
	case <-x.first:
	case <-time.After(settle):
	}
	s.give()
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foreign--
	s.passes(scope, -1)
	s.passages++
	for _, sl := range s.slots {
		if !sl.busy && !sl.unsaved {
			sl.forget()
		}
	}
}

// settle is how long a server takes, at most but for a busy machine, from a request to its slot.
const settle = 50 * time.Millisecond

// newest is the number of the last task that began in any slot.
func (s *served) newest(ctx context.Context) (task int, err error) {
	list, err := s.api.Slots(ctx)
	for _, st := range list {
		task = max(task, st.Task())
	}
	return task, err
}

// chosen waits until a request that cannot name its slot is in one, which becomes the leased one. Its task began after the given one. It
// reports false, and forgets what idle slots hold, if which one it is cannot be told. The caller has the turn.
func (s *served) chosen(ctx context.Context, sl *slot, after int, answering <-chan struct{}) bool {
	answered := false
	for pause := time.Millisecond; !answered && ctx.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-answering:
			answered = true
		case <-ctx.Done():
		case <-time.After(pause):
		}
		list, err := s.api.Slots(s.front.ctx)
		if err != nil {
			s.log.Debug("looking at the slots", "err", err)
			continue
		}
		list = slices.DeleteFunc(list, func(st api.Slot) bool { return st.Task() <= after })
		if len(list) == 1 && s.move(sl, list[0].ID) {
			s.mu.Lock()
			sl.task = list[0].Task()
			s.mu.Unlock()
			return true
		}
		if len(list) > 0 { // requests that passed are there, too
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.slots {
		if !other.busy || other == sl {
			other.forget()
		}
	}
	return false
}

// move makes another slot the leased one, if nobody has leased it.
func (s *served) move(sl *slot, id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == sl.id {
		return true
	}
	if id < 0 || id >= len(s.slots) || s.slots[id].busy {
		return false
	}
	other := s.slots[id]
	sl.id, other.id, sl.pure, other.pure = other.id, sl.id, other.pure, sl.pure
	s.slots[sl.id], s.slots[other.id] = sl, other
	other.forget()
	return true
}
