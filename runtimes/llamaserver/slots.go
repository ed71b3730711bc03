package llamaserver

import (
	"context"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// slot is a sequence of the server, as far as the front knows it. The fields are guarded by served.mu; who has leased a slot may
// read them without.
type slot struct {
	id      int
	busy    bool // leased
	working bool // leased, and its request was sent: the server does not clear it
	slow    bool // and was done, but its client reads slowly: nobody waits for it again
	used    time.Time
	prompt  kv.Prompt // what it holds at least: the prompt that was computed in it last. What was decoded behind it, a save shows
	// unsaved says that it holds rows which the store may lack. A slot that another request will take is saved before.
	unsaved  bool
	endpoint request.Endpoint // of the request that filled it
	kind     string           // and in words, what kind of request that was
	foreign  int              // served.passages when that began
	drops    int              // loaded.dropped when that began
	pure     int              // loaded.soiled when it was known to hold nothing else than what the model has computed
	// adapters are those of the last request that began in the slot, if adapted says that they are known. A server throws away what a slot holds, and
	// what was restored into it, when the next request names others.
	adapters []kv.Adapter
	adapted  bool
	left     bool // its client went before the end: how far the server came, and whether it began, is not known
	ended    time.Time

	// Of the slot's last request, if it was answered and nothing has changed since: what it said, the server's number of it if that was seen, whether the slot
	// kept all that it had before, and whether that was restored.
	last     *request.Shape
	task     int
	kept     bool
	restored bool
	empty    bool // it was emptied, and nothing has begun in it since
	coming   bool // a request was sent whose tokens are not known yet: they are what the slot holds next
}

// forget says that nothing is known of the slot any more.
func (s *slot) forget() {
	s.prompt, s.unsaved, s.adapted = kv.Prompt{}, false, false
	s.last, s.kept, s.coming, s.empty = nil, false, false, false
}

// waiter is a request that waits for a slot.
type waiter struct {
	prompt kv.Prompt
	slot   chan *slot
}

// lease waits for a slot: the one that holds most of the prompt, or the one that was not used for longest. Requests get theirs in
// the order in which they came.
func (s *served) lease(ctx context.Context, prompt kv.Prompt) (*slot, error) {
	w := &waiter{prompt: prompt, slot: make(chan *slot, 1)}
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.grant()
	s.mu.Unlock()
	select {
	case sl := <-w.slot:
		return sl, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(x *waiter) bool { return x == w })
	select {
	case sl := <-w.slot:
		sl.busy = false
		s.grant()
	default:
	}
	return nil, ctx.Err()
}

// release gives a slot back.
func (s *served) release(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.busy, sl.working, sl.slow, sl.ended = false, false, false, time.Now()
	s.grant()
}

// grant hands idle slots to those who wait. The caller holds mu.
func (s *served) grant() {
	for len(s.queue) > 0 {
		sl := s.best(s.queue[0].prompt)
		if sl == nil {
			return
		}
		sl.busy, sl.used = true, time.Now()
		s.queue[0].slot <- sl
		s.queue = s.queue[1:]
	}
}

// best is the idle slot for a prompt. One that shares less than half of what it holds, a system prompt, say, belongs to another
// conversation and is left to it as long as there are others. The caller holds mu.
func (s *served) best(prompt kv.Prompt) (best *slot) {
	shared := 0
	for _, sl := range s.slots {
		if sl.busy || sl.id >= s.usable {
			continue
		}
		n := common(sl.prompt, prompt)
		if 2*n < len(sl.prompt.Tokens) {
			n = 0
		}
		switch {
		case best == nil, n > shared, n == shared && sl.used.Before(best.used):
			best, shared = sl, n
		}
	}
	return best
}

// common is how many leading tokens of b a slot that holds a can reuse.
func common(a, b kv.Prompt) int {
	if !slices.Equal(a.Adapters, b.Adapters) {
		return 0
	}
	n := alike(a.Tokens, b.Tokens)
	if a.Scope != b.Scope {
		n = min(n, bothHave(a, b))
	}
	return n
}

// working are the slots beside one in which the server works, or was done a moment ago.
func (s *served) working(beside *slot) (out []*slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if sl.working && sl != beside {
			out = append(out, sl)
		}
	}
	return out
}

// quick are those of the working slots for which nobody has waited in vain.
func (s *served) quick(beside *slot) []*slot {
	out := s.working(beside)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(out, func(sl *slot) bool { return sl.slow })
}

// ended are those of some slots in which the server does not work any more: it may clear them.
func (s *served) ended(ctx context.Context, slots []*slot) []*slot {
	if len(slots) == 0 {
		return nil
	}
	list, err := s.api.Slots(ctx)
	if err != nil {
		s.log.Debug("looking at the slots", "err", err)
		return nil
	}
	return slices.DeleteFunc(slots, func(sl *slot) bool {
		return !slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.id && !st.Processing })
	})
}

// forgetEmptied forgets what the server has emptied since a request began in slot begun: it may empty all slots in which it does not work. A slot is kept if
// the server says that its tokens are there. A leased one may have fewer than its prompt, since its client went: who has leased it sees to that. list is
// what the server says of its slots since then; nil: it is asked.
func (s *served) forgetEmptied(ctx context.Context, begun *slot, list []api.Slot) {
	if s.args.KeepsIdle {
		return
	}
	if list == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), api.SlotTime)
		defer cancel()
		var err error
		if list, err = s.api.Slots(ctx); err != nil {
			s.log.Debug("looking at the slots", "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		has := sl == begun || sl.working && len(list) == 0
		for _, st := range list {
			if n, known := st.Holds(); st.ID == sl.id {
				has = has || st.Processing && sl.working || known && n >= trial.FewTokens && (n >= len(sl.prompt.Tokens) || sl.working)
			}
		}
		if !has {
			sl.forget()
		}
	}
}

// forget says that nothing is known of some slots any more.
func (s *served) forget(slots []*slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range slots {
		sl.forget()
	}
}

// unsavedSlots are the slots that must be saved before another slot than keep begins to work: the server may clear them, those too that are
// leased to who waits for the turn.
func (s *served) unsavedSlots(keep *slot) (out []*slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if sl.unsaved && sl != keep && !sl.working {
			out = append(out, sl)
		}
	}
	return out
}
