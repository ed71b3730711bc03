package llamaserver

import (
	"context"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
)

// left saves what a slot holds whose client has gone, before anybody else gets the slot: a long prompt was perhaps computed for the greater part. The slot
// file says how far the server came.
func (s *served) left(sl *slot) {
	for s.stopped(sl) {
		ctx, cancel := context.WithTimeout(s.front.ctx, api.SlotTime)
		at, done := s.leftIdle(ctx, sl)
		cancel()
		if done {
			return
		}
		if !at {
			break
		}
	}
	s.forget([]*slot{sl})
}

// leftIdle saves the slot if the server does not work in it any more. It reports whether it could look, and whether it is done.
func (s *served) leftIdle(ctx context.Context, sl *slot) (looked, done bool) {
	if s.take(ctx) != nil {
		return false, false
	}
	defer s.give()
	list, err := s.api.Slots(ctx)
	if err != nil {
		return false, false
	}
	if slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.id && st.Processing }) { // it had not even begun
		return true, false
	}
	s.mu.Lock()
	unsaved := sl.unsaved
	s.mu.Unlock()
	if unsaved {
		s.save(ctx, sl)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.left { // nobody has seen what it holds
		sl.forget()
	}
	return true, true
}

// hearing is how long the server is left in peace. It looks whether a client is still there when it has had nothing to answer to anybody for a second:
// who asks it about its slots more often keeps it at work to the end.
const hearing = 1500 * time.Millisecond

// stopped waits until the server works in a slot no more: when it hears that the client has gone, it ends the batch at which it is, however long that
// takes. What is done to a slot at work is put off by the server. It reports false if there is no such server any more.
func (s *served) stopped(sl *slot) bool {
	for {
		list, err := s.api.Slots(s.front.ctx)
		if err != nil || s.gone.Load() {
			return false
		}
		if !slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.id && st.Processing }) {
			return true
		}
		select {
		case <-s.front.ctx.Done():
			return false
		case <-time.After(hearing):
		}
	}
}

// holds notes what a slot holds whose client has gone, as its file says: the beginning of the prompt at least, or something else.
func (s *served) holds(sl *slot, f *slotfile.File, lay *layout.Layout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := lay.Format.Parse(f.Bytes())
	if err != nil {
		sl.forget()
		return
	}
	n := min(len(file.Tokens), len(sl.prompt.Tokens))
	if !slices.Equal(file.Tokens[:n], sl.prompt.Tokens[:n]) {
		sl.forget()
		return
	}
	sl.prompt, sl.left = sl.prompt.Prefix(n), false
}

// mayShift reports whether the server may have shifted rows for a request whose end nobody has seen: it does, if it was asked to, when an answer fills
// the context. Of a server that somebody else has started nobody knows whether it was.
func (s *served) mayShift(req *request.Request, prompt int) bool {
	if !s.args.Shifts && s.front.o.Attach == "" {
		return false
	}
	most, bounded := req.MostTokens()
	return !bounded || prompt+most+2 >= s.context
}
