package llamaserver

import (
	"context"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// plan is what was decided for a request.
type plan struct {
	slot     *slot
	held     int // leading tokens that the slot had
	found    int // that the store has
	restored int
	reason   db.Reason
	lookup   time.Duration
	load     time.Duration
	bytes    int64
}

// begin saves the slots that would lose what only they have, and brings what is stored of the prompt into the leased slot, if
// that pays. The caller has the turn. What fails is logged: the server computes the prompt then.
func (s *served) begin(ctx context.Context, m *db.Model, lay *layout, sl *slot, prompt kv.Prompt) *plan {
	s.own(ctx, sl)
	if len(sl.prompt.Tokens) > 0 && !s.watch { // else that was looked at just now
		s.believed(ctx, sl)
	}
	p := &plan{slot: sl, held: common(sl.prompt, prompt)}
	keep := sl
	if p.held < len(sl.prompt.Tokens) { // its end goes
		keep = nil
		if sl.unsaved {
			s.save(ctx, sl)
		}
		if !lay.rolls() {
			p.held = 0
		}
	}
	s.saveOthers(ctx, keep)
	s.settled(ctx, prompt, p.held)
	start := time.Now()
	match, err := m.Match(ctx, prompt, db.MatchOptions{Limit: len(prompt.Tokens) - 1})
	p.lookup = time.Since(start)
	if err != nil {
		s.log.Warn("looking up a prompt", "err", err)
		return p
	}
	defer match.Close()
	p.found, p.reason = match.Tokens(), match.Reason()
	if !s.costs.pays(p.found, p.found-p.held) || s.restoresUnused() {
		return p
	}
	if s.taken(ctx, sl) { // a restore would wait for it, and all others for the restore
		p.held = 0
		return p
	}
	start = time.Now()
	n, bytes, err := s.restore(ctx, match, lay, sl, prompt)
	p.load, p.bytes = time.Since(start), bytes
	if err != nil {
		s.log.Warn("restoring a prompt", "slot", sl.id, "tokens", p.found, "err", err)
		s.mu.Lock()
		sl.forget()
		s.mu.Unlock()
		p.held = 0
		return p
	}
	if p.restored = n; n > 0 {
		s.mu.Lock()
		sl.prompt, sl.unsaved = prompt.Prefix(n), false
		s.mu.Unlock()
		s.costs.restored(p.lookup+p.load, n)
	}
	return p
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

// maxNotReused is how many restores in a row may be for nothing.
const maxNotReused = 3

func (s *served) restoresUnused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReused >= maxNotReused
}

// begun notes what the slots hold once a prompt has begun in one of them. It gives what that slot holds if the server refuses.
func (s *served) begun(sl *slot, prompt kv.Prompt, e request.Endpoint) (before slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = *sl
	sl.prompt, sl.endpoint, sl.foreign = prompt, e, s.passages
	sl.unsaved, sl.working = true, true
	if !s.args.KeepsIdle {
		for _, other := range s.slots {
			if other != sl && !other.working {
				other.forget()
			}
		}
	}
	return before
}

// failed notes what a slot holds whose request the server has answered with an error: what it held before, if it was the request's fault.
func (s *served) failed(sl *slot, before slot, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status >= 400 && status < 500 {
		sl.prompt, sl.unsaved, sl.endpoint, sl.foreign = before.prompt, before.unsaved, before.endpoint, before.foreign
	} else {
		sl.forget()
	}
}

// launched waits until a request that was sent works in its slot, its answer has begun, or the client has gone: what is done to slots
// afterwards comes after it.
func (s *served) launched(ctx context.Context, sl *slot, answering <-chan struct{}) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-answering:
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		list, err := s.api.slots(ctx)
		if err != nil {
			s.log.Debug("looking at the slots", "err", err)
			continue
		}
		for _, st := range list {
			if st.ID == sl.id && st.Processing {
				return
			}
		}
	}
}

// stopTime is how long a server may take to see that a client has gone.
const stopTime = 10 * time.Second

// stopped waits until the server works in a slot no more whose client has gone. What is done to a slot at work is put off by the server, for
// as long as it likes.
func (s *served) stopped(sl *slot) {
	ctx, cancel := context.WithTimeout(s.front.ctx, stopTime)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		list, err := s.api.slots(ctx)
		if err != nil || s.gone.Load() {
			break
		}
		for _, st := range list {
			if st.ID == sl.id && !st.Processing {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.forget()
}

// finished compares what the server reused with what it was given, and the prompt that it has computed with the one that the front knows.
func (s *served) finished(p *plan, prompt kv.Prompt, e request.Endpoint, a answered) {
	if !a.known {
		return
	}
	if n := a.cached + a.prompt; n != len(prompt.Tokens) {
		s.rendersOtherwise(e, fmt.Errorf("%w: it has %d, expected %d", errOtherTokens, n, len(prompt.Tokens)))
		s.mu.Lock()
		p.slot.forget()
		s.mu.Unlock()
		return
	}
	s.costs.computed(a.prefill, a.prompt)
	if p.restored == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if expected := p.restored - s.lay.again(p.restored); a.cached >= expected {
		s.notReused = 0
		return
	}
	if a.cached == 0 && s.lay.window > 0 && !s.lay.strict.Swap(true) {
		s.log.Info("the server did not reuse what was restored: it gets a checkpoint with it from now on", "model", s.name)
		m, note := s.model, strictNote(s.note)
		s.wait.Go(func() {
			if err := m.SetNote(context.Background(), note, []byte{1}); err != nil {
				s.log.Warn("remembering that the server wants checkpoints", "err", err)
			}
		})
		return
	}
	s.notReused++
	s.log.Warn("restored but not reused", "model", s.name, "slot", p.slot.id, "restored", p.restored, "reused", a.cached, "in a row", s.notReused)
	if s.notReused == maxNotReused {
		s.log.Warn("the server does not reuse what is restored: no more is restored for this model until the server is started again", "model", s.name)
	}
}
