package llamaserver

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// own gives an error unless what a slot holds was computed by the files that were hashed. It is forgotten then, but if the files are just being
// read. The caller has the turn, or the slot.
func (s *served) own(ctx context.Context, sl *slot) error {
	err := s.loaded.Sound(ctx)
	if errors.Is(err, request.PassHashing) {
		return err
	}
	if err == nil {
		err = s.sameScales(ctx)
	}
	drops := s.loaded.Dropped()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && (sl.drops != drops || s.gone.Load()) {
		err = weights.ErrAnew
	}
	if err == nil {
		return nil
	}
	if len(sl.prompt.Tokens) > 0 {
		s.log.Warn("what a slot holds is dropped: other rows may have come into it, or other files into the server", "slot", sl.id, "tokens", len(sl.prompt.Tokens), "err", err)
	}
	sl.forget()
	sl.drops = drops
	return err
}

// later has a slot saved once the files have been read that are just being read.
func (s *served) later(sl *slot, err error) {
	if !errors.Is(err, request.PassHashing) {
		return
	}
	s.mu.Lock()
	sl.unsaved = len(sl.prompt.Tokens) > 0
	s.mu.Unlock()
	s.idle(sl)
}

// glance notes what became of the files before a request goes on that may wake the server.
func (f *Front) glance(ctx context.Context) {
	for _, s := range f.models() {
		if _, _, err := s.ready(); (err == nil || errors.Is(err, request.PassFiles)) && (s.args.Sleep > 0 || s.watch) && errors.Is(s.loaded.Sound(ctx), weights.ErrAnew) && !s.gone.Load() {
			f.reset()
		}
	}
}
