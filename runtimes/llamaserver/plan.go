package llamaserver

import (
	"context"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// plan is what was decided for a request.
type plan struct {
	slot     *slot
	kind     string // of request, in words
	why      string // nothing was restored, if the store's reason is not why: a code of figures
	held     int    // leading tokens that the slot had
	parts    bool   // the slot had others behind them
	found    int    // that the store has
	restored int
	reason   db.Reason
	near     nearest  // where it parts from the nearest prompt of a slot, as far as that is known before
	parted   *parting // and from what is stored, too, if little is reused; nil: it does not, or nobody knows
	lookup   time.Duration
	load     time.Duration
	bytes    int64
}

// begin saves the slots that would lose what only they have, and brings what is stored of the prompt into the leased slot, if
// that pays. The caller has the turn. What fails is logged: the server computes the prompt then.
func (s *served) begin(ctx context.Context, m *db.Model, lay *layout.Layout, sl *slot, prompt kv.Prompt, req *request.Request) *plan {
	s.own(ctx, sl)
	if len(sl.prompt.Tokens) > 0 && !s.watch { // else that was looked at just now
		s.believed(ctx, sl)
	}
	p := &plan{slot: sl, kind: req.Kind(), held: common(sl.prompt, prompt)}
	p.near = s.nearestSlot(prompt)
	keep := sl
	if p.held < len(sl.prompt.Tokens) { // its end goes
		p.parts, keep = p.held < len(prompt.Tokens), nil
		if sl.unsaved {
			s.save(ctx, sl)
		}
		if !lay.Rolls() {
			p.held = 0
		}
	}
	s.saveOthers(ctx, keep)
	s.settled(ctx, prompt, p.held)
	start := time.Now()
	match, err := m.Match(ctx, prompt, db.MatchOptions{Limit: len(prompt.Tokens) - 1})
	p.lookup = time.Since(start)
	if err != nil {
		p.why = figures.LookupFailed
		s.log.Warn("looking up a prompt", "err", err)
		s.front.wakes(err)
		return p
	}
	defer match.Close()
	p.found, p.reason = match.Tokens(), match.Reason()
	if p.found <= p.held { // the store's reason says why, or the slot has more
		return p
	}
	if p.why = s.notWorth(p); p.why != "" {
		return p
	}
	if !req.Endpoint.Pins() && p.found*leastChosen <= len(prompt.Tokens) {
		p.why = figures.NotChosen
		return p
	}
	if s.taken(ctx, sl) { // a restore would wait for it, and all others for the restore
		p.held, p.why = 0, figures.SlotTaken
		return p
	}
	soiled, _ := s.loaded.Soiled()
	start = time.Now()
	n, bytes, err := 0, int64(0), s.adapt(ctx, sl, prompt, req)
	if err == nil {
		n, bytes, err = s.restore(ctx, match, lay, sl, prompt)
	}
	p.load, p.bytes = time.Since(start), bytes
	if err != nil {
		s.log.Warn("restoring a prompt", "slot", sl.id, "tokens", p.found, "err", err)
		s.mu.Lock()
		sl.forget()
		s.mu.Unlock()
		p.held, p.why = 0, figures.RestoreFailed
		return p
	}
	if p.restored = n; n > 0 {
		s.mu.Lock()
		sl.prompt, sl.unsaved, sl.pure, sl.empty = prompt.Prefix(n), false, soiled, false
		s.mu.Unlock()
		s.costs.Restored(p.lookup+p.load, n, n-p.held)
	}
	return p
}

// leastChosen is how much of a prompt a slot must have, as a divisor, that llama-server chooses it for what it has (--slot-prompt-similarity, a tenth if it is
// not said). With less it takes the slot that was not used for longest, and what was restored elsewhere is of no use.
const leastChosen = 10

// notWorth is why what was found is not restored: a code, or none.
func (s *served) notWorth(p *plan) string {
	lacking := p.found - p.held
	if lacking < trial.FewTokens {
		return figures.TooFew
	}
	s.mu.Lock()
	rests := s.notReused.Resting(p.kind)
	s.mu.Unlock()
	switch {
	case rests:
		return figures.NotReused
	case !s.costs.Pays(p.found, lacking):
		return figures.TooSlow
	}
	return ""
}

// saveOthers saves what only idle slots have.
func (s *served) saveOthers(ctx context.Context, keep *slot) {
	if !s.args.KeepsIdle {
		var over []*slot
		for range 20 { // what is done is released soon, unless its client reads slowly
			if over = s.ended(ctx, s.quick(keep)); len(over) == 0 || ctx.Err() != nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		s.mu.Lock()
		for _, sl := range over {
			sl.slow = sl.working
		}
		s.mu.Unlock()
	}
	for _, sl := range s.unsavedSlots(keep) {
		s.save(ctx, sl)
	}
}

// begun notes what a slot holds once a prompt has begun in it. It gives what it holds if the server refuses.
func (s *served) begun(sl *slot, prompt kv.Prompt, req *request.Request) (before slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = *sl
	sl.prompt, sl.endpoint, sl.kind, sl.foreign = prompt, req.Endpoint, req.Kind(), s.passages
	sl.unsaved, sl.working, sl.left = true, true, false
	sl.adapters, sl.adapted = prompt.Adapters, true
	sl.last, sl.task, sl.coming, sl.empty = nil, -1, len(prompt.Tokens) == 0, false
	return before
}

// failed notes what a slot holds whose request the server has answered with an error: what it held before, if it was the request's fault.
func (s *served) failed(sl *slot, before slot, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status >= 400 && status < 500 {
		sl.prompt, sl.unsaved, sl.endpoint, sl.kind, sl.foreign = before.prompt, before.unsaved, before.endpoint, before.kind, before.foreign
		sl.last, sl.task, sl.kept, sl.coming = before.last, -1, before.kept, false
	} else {
		sl.forget()
	}
}

// launched waits until a request that was sent works in its slot, its answer has begun, or the client has gone: what is done to slots
// afterwards comes after it. It gives what the server says of its slots if the request is seen there.
func (s *served) launched(ctx context.Context, sl *slot, answering <-chan struct{}) []api.Slot {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-answering:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		list, err := s.api.Slots(ctx)
		if err != nil {
			s.log.Debug("looking at the slots", "err", err)
			continue
		}
		for _, st := range list {
			if st.ID == sl.id && st.Processing {
				s.mu.Lock()
				sl.task = st.Task()
				s.mu.Unlock()
				return list
			}
		}
	}
}

// finished compares what the server reused with what it was given, and the prompt that it has computed with the one that the front knows.
func (s *served) finished(p *plan, prompt kv.Prompt, a answered) {
	if !a.known {
		return
	}
	if n := a.cached + a.prompt; n != len(prompt.Tokens) {
		s.differs(p.kind, fmt.Errorf("%w: it has %d, expected %d", layout.ErrOtherTokens, n, len(prompt.Tokens)))
		s.mu.Lock()
		p.slot.forget()
		s.mu.Unlock()
		return
	}
	s.costs.Computed(a.prefill, a.prompt)
	if p.restored == 0 {
		return
	}
	if expected := p.restored - s.lay.Again(p.restored); a.cached < expected {
		s.unused(p, a)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notReused.Worked(p.kind)
}

// unused counts a restore that the server did not reuse.
func (s *served) unused(p *plan, a answered) {
	s.mu.Lock()
	rests := s.notReused.Failed(p.kind)
	p.slot.adapted = false
	s.mu.Unlock()
	s.log.Warn("restored but not reused", "model", s.name, "kind", p.kind, "slot", p.slot.id, "restored", p.restored, "reused", a.cached)
	// Whether the server wants checkpoints is found out by trying: both ways, if neither works.
	if strict := s.lay.Strict.Load(); a.cached == 0 && s.lay.Window > 0 && (!strict || rests) && s.lay.Strict.CompareAndSwap(strict, !strict) {
		s.log.Info("the server did not reuse what was restored: the next time it is done in the other way", "model", s.name, "with a checkpoint", !strict)
		m, note, value := s.model, layout.StrictNote(s.note), []byte{1}
		if strict {
			value = nil
		}
		s.wait.Go(func() {
			if err := m.SetNote(context.Background(), note, value); err != nil {
				s.log.Warn("remembering whether the server wants checkpoints", "err", err)
			}
		})
	}
	if rests {
		s.log.Warn("the server does not reuse what is restored: nothing is restored for such requests for a while", "model", s.name, "kind", p.kind)
	}
}
