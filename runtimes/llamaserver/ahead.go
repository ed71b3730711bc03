package llamaserver

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// A request that goes on where a slot's last one ended, as an agent's next turn does, is sent to that slot at once: the server makes the prompt's tokens
// itself and compares them with the slot's. The front makes them while the answer comes, since it must know what the slot holds. That is never wrong: what
// the slot does not have, the server computes. It would only take longer than a restore where the template makes another beginning of the same messages, or
// where more of the prompt is stored than the slot holds. So it is done only where little is new, where nothing is lost that no store has, and where the
// server says that the slot is as the last request has left it. Whatever else is in doubt goes the other way: rendered first.

// An eighth of a request may be new: more may be stored, and takes so long to compute that making its tokens first makes no difference.
const newPart = 8

// What a template may write around a message, in tokens, beside the message's bytes.
const aroundMessage = 64

// ahead sends a request to the slot whose last request it goes on with, if there is one. It reports whether it did.
func (f *Front) ahead(w http.ResponseWriter, r *http.Request, s *served, m *db.Model, lay *layout.Layout, req *request.Request, shape *request.Shape) bool {
	ctx := r.Context()
	bare, err := s.bare(r, req)
	if err != nil || shape == nil {
		return false
	}
	sl := s.continued(shape, req.Kind(), req.Endpoint.Pins(), bare)
	if sl == nil {
		return false
	}
	if s.take(ctx) != nil { // the client went
		s.release(sl)
		s.idle(sl)
		return true
	}
	given := false
	give := func() {
		if !given {
			given = true
			s.give()
		}
	}
	defer give()
	sure := s.unchanged(ctx, sl)
	if sure {
		s.saveOthers(ctx, sl)
		sure = s.loaded.Sound(ctx) == nil && !s.gone.Load() && !s.busyElsewhere()
	}
	if !sure || ctx.Err() != nil {
		give()
		s.release(sl)
		s.idle(sl)
		return ctx.Err() != nil
	}
	had := sl.prompt
	f.log.Debug("a request is sent before its tokens are known", "slot", sl.id, "held", len(had.Tokens))
	k := &sent{
		s: s, m: m, sl: sl, visit: visitOf(r), req: req, shape: shape, prompt: bare, plan: &plan{slot: sl, kind: req.Kind(), held: len(had.Tokens)},
		x: &exchange{first: make(chan struct{})},
	}
	rendered := make(chan error, 1)
	f.work.Go(func() {
		<-k.x.first // before, it would take time from the answer
		ctx, cancel := context.WithTimeout(f.ctx, api.SlotTime)
		defer cancel()
		prompt, err := s.prompt(ctx, r, req)
		k.prompt = prompt
		rendered <- err
	})
	k.send(w, r, give)
	k.visit.leaves()
	f.work.Go(func() { // the client need not wait for it
		s.caughtUp(k, lay, had, r, <-rendered)
		k.free()
	})
	k.x.breakOff()
	return true
}

// bare is all of a prompt but its tokens.
func (s *served) bare(r *http.Request, req *request.Request) (p kv.Prompt, err error) {
	if p.Adapters, err = s.adaptersOf(req); err == nil && s.front.o.ScopeByKey {
		p.Scope = ScopeOfKey(keyOf(r))
	}
	return p, err
}

// continued leases the slot whose last request a request goes on with.
func (s *served) continued(shape *request.Shape, kind string, pins bool, bare kv.Prompt) (best *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign > 0 || s.front.o.ScopeByKey && !pins && len(s.slots) > 1 { // in another slot there may be more of it, of another key
		return nil
	}
	for _, sl := range s.slots {
		if sl.busy || sl.id >= s.usable || sl.last == nil || len(sl.prompt.Tokens) < trial.FewTokens || sl.unsaved && !sl.kept {
			continue
		}
		// Where a slot cannot go back to any place, it needs checkpoints that the server has made.
		if !s.lay.Rolls() && (sl.restored || shape.IsText()) {
			continue
		}
		if sl.prompt.Scope != bare.Scope || !slices.Equal(sl.prompt.Adapters, bare.Adapters) {
			continue
		}
		more, messages, ok := shape.Extends(sl.last)
		if !ok || more > shape.Bytes()/newPart || len(sl.prompt.Tokens)+more+aroundMessage*(messages+2) >= s.context {
			continue
		}
		if best == nil || len(sl.prompt.Tokens) > len(best.prompt.Tokens) {
			best = sl
		}
	}
	if best == nil || s.overtaken.Resting(kind) {
		return nil
	}
	best.busy, best.used = true, time.Now()
	return best
}

// unchanged reports whether a slot is as its last request has left it, as far as the server says. The caller has the turn.
func (s *served) unchanged(ctx context.Context, sl *slot) bool {
	if s.gone.Load() || s.own(ctx, sl) != nil {
		return false
	}
	list, err := s.api.Slots(ctx)
	if err != nil {
		s.log.Debug("looking at the slots", "err", err)
		return false
	}
	s.mu.Lock()
	held := len(sl.prompt.Tokens)
	slept := s.believe(list, sl)
	same := false
	for _, st := range list {
		n, known := st.Holds()
		same = same || st.ID == sl.id && !st.Processing && st.Last != nil && known && n >= held && (!s.watch || st.Task() == sl.task)
	}
	same = same && held >= trial.FewTokens && len(sl.prompt.Tokens) == held && !slept && sl.last != nil
	s.mu.Unlock()
	if slept {
		s.woke(ctx)
	}
	return same
}

// answered notes what a slot's last request was, once it has been answered.
func (s *served) answered(k *sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.sl.last = nil; len(k.sl.prompt.Tokens) > 0 {
		k.sl.last = k.shape
	}
	k.sl.kept = k.plan.held > 0 && k.plan.held == len(k.before.prompt.Tokens)
	k.sl.restored = k.plan.restored > 0
}

// caughtUp does what is done before a request otherwise: what the slot had of its prompt, and what is stored of it, is known now.
func (s *served) caughtUp(k *sent, lay *layout.Layout, had kv.Prompt, r *http.Request, err error) {
	a := k.answer()
	if err != nil || k.x.status >= http.StatusBadRequest && !a.known {
		if err != nil && !s.gone.Load() {
			s.log.Warn("making the tokens of a prompt that was sent ahead", "slot", k.sl.id, "err", err)
		}
		k.prompt.Tokens = nil
		a.known = false
		s.forget([]*slot{k.sl})
		k.ended(a)
		return
	}
	p := &plan{slot: k.sl, kind: k.plan.kind, held: common(had, k.prompt), near: s.nearestSlot(k.prompt)}
	p.parts = p.held < min(len(had.Tokens), len(k.prompt.Tokens))
	if p.parts && p.held > p.near.common {
		p.near = nearest{p.held, slices.Clone(had.Tokens[p.held:min(p.held+theirTokens, len(had.Tokens))]), time.Time{}}
	}
	s.mu.Lock()
	if k.sl.coming { // else it was forgotten meanwhile
		k.sl.prompt, k.sl.coming = k.prompt, false
	}
	s.mu.Unlock()
	if p.held < len(had.Tokens) && !lay.Rolls() {
		p.held = 0
	}
	start := time.Now()
	match, err := k.m.Match(s.front.ctx, k.prompt, db.MatchOptions{Limit: len(k.prompt.Tokens) - 1})
	p.lookup = time.Since(start)
	if err == nil {
		p.found, p.reason = match.Tokens(), match.Reason()
		match.Close()
	} else {
		s.front.wakes(err)
	}
	p.parted = s.parted(s.front.ctx, k.m, p, k.prompt, r, k.req)
	k.plan = p
	switch {
	case !a.known:
	case p.found >= a.cached+trial.FewTokens: // a restore would have been better
		s.overtaken.Failed(p.kind)
	default:
		s.overtaken.Worked(p.kind)
	}
	k.ended(a)
}
