package llamaserver

import (
	"context"
	"slices"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
)

// left saves what a slot holds whose client has gone, before anybody else gets the slot: much of a long prompt may have been computed. The slot
// file says how far the server came.
func (s *saver) left(sl *slots.Slot) {
	for s.look.Stopped(sl, s.life.gone) {
		ctx, cancel := context.WithTimeout(s.look.Ctx, api.SlotTime)
		looked, done := s.leftIdle(ctx, sl)
		cancel()
		if done {
			return
		}
		if !looked {
			break
		}
	}
	s.table.Forget(sl)
}

// leftIdle saves the slot if the server does not work in it any more. It reports whether it could look, and whether it is done.
func (s *saver) leftIdle(ctx context.Context, sl *slots.Slot) (looked, done bool) {
	turn, err := s.table.Take(ctx)
	if err != nil {
		return false, false
	}
	defer turn.Give()
	list, err := s.look.API.Slots(ctx)
	if err != nil {
		return false, false
	}
	if slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.ID && st.Processing }) { // it had not even begun
		return true, false
	}
	if s.table.Of(sl).Unsaved {
		s.save(ctx, sl)
	}
	s.table.ForgetLeft(sl)
	return true, true
}

// holds notes what a slot holds whose client has gone, as its file says: the beginning of the prompt at least, or something else.
func (s *saver) holds(sl *slots.Slot, f *slotfile.File) {
	file, err := s.lay.Format.Parse(f.Bytes())
	if err != nil {
		s.table.Forget(sl)
		return
	}
	s.table.LeftWith(sl, file.Tokens)
}
