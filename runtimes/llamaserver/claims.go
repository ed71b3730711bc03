package llamaserver

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// believed compares what the front believes of idle slots, and of the leased one, with what the server says: it empties slots when it sleeps, and
// idle ones when a cache that they share is full. The caller has the turn.
func (s *served) believed(ctx context.Context, sl *slot) {
	list, err := s.api.Slots(ctx)
	if err != nil {
		s.log.Debug("looking at the slots", "err", err)
		return
	}
	s.mu.Lock()
	slept := s.believe(list, sl)
	s.mu.Unlock()
	if slept {
		s.woke(ctx)
	}
}

// believe takes from the server's list what slots hold. It reports whether the server has loaded its model again since: a slot in which a task
// had begun knows of none. The caller holds mu.
func (s *served) believe(list []api.Slot, sl *slot) (slept bool) {
	for _, st := range list {
		if st.ID < 0 || st.ID >= len(s.slots) {
			continue
		}
		had := s.slots[st.ID]
		if had.busy && had != sl || len(had.prompt.Tokens) == 0 {
			continue
		}
		n, known := st.Holds()
		switch {
		case st.Processing, known && n < trial.FewTokens, known && n < len(had.prompt.Tokens) && s.watch: // somebody else's prompt may be in it
			had.forget()
		case known && n < len(had.prompt.Tokens):
			had.prompt = had.prompt.Prefix(n)
		}
		slept = slept || st.Last == nil
	}
	return slept
}

// woke looks at what a server says of itself that has loaded its model again: with less memory, its slots may be shorter.
func (s *served) woke(ctx context.Context) {
	p, err := s.api.Props(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	same := s.seen.props == seenOf(p, "").props
	s.mu.Unlock()
	if same || s.gone.Load() {
		return
	}
	s.log.Info("the server is another one since it woke", "model", p.ModelPath)
	s.front.reset()
}

// sameScales gives errAnew if the server's adapters have other scales now: whoever asks the server may set them, and it may forget them when it sleeps.
func (s *served) sameScales(ctx context.Context) error {
	s.mu.Lock()
	was := s.adapters
	s.mu.Unlock()
	if len(was) == 0 || !s.watch && s.args.Sleep == 0 {
		return nil
	}
	now, err := s.api.Adapters(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", request.PassServer, err)
	case !slices.Equal(now, was):
		return weights.ErrAnew
	}
	return nil
}

// disproved has the front believe nothing more of idle slots when the server computed again what one was believed to hold.
func (s *served) disproved(p *plan, a answered) {
	if !a.known || p.restored > 0 || p.held < trial.FewTokens || a.cached+1 >= p.held {
		return
	}
	s.log.Info("a slot did not hold what it was believed to", "slot", p.slot.id, "believed", p.held, "reused", a.cached)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if !sl.busy && !sl.unsaved {
			sl.forget()
		}
	}
}
