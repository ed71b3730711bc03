package llamaserver

import (
	"context"
	"net/http"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// A request that goes on where a slot's last one ended, as an agent's next turn does, is sent to that slot at once: the server makes the prompt's tokens
// itself and compares them with the slot's. The front makes them while the answer comes, since it must know what the slot holds. That is never wrong: what
// the slot does not have, the server computes. It would only take longer than a restore where the template makes another beginning of the same messages, or
// where more of the prompt is stored than the slot holds. So it is done only where little is new, where nothing is lost that no store has, and where the
// server says that the slot is as the last request has left it. Whatever else is in doubt goes the other way: rendered first.

// ahead sends a request to the slot whose last request it goes on with, if there is one. It reports whether it did.
func (f *Front) ahead(w http.ResponseWriter, r *http.Request, s *served, k *kept, req *request.Request, shape *request.Shape) bool {
	ctx := r.Context()
	bare, err := k.prompts.bare(r, req)
	if err != nil || shape == nil {
		return false
	}
	sl := s.table.Continued(slots.Next{Shape: shape, Kind: req.Kind(), Pins: req.Endpoint.Pins(), Prompt: bare, Room: k.room, Rolls: k.lay.Rolls()}, &k.overtaken)
	if sl == nil {
		return false
	}
	turn, err := s.table.Take(ctx)
	if err != nil { // the client went
		s.table.Release(sl)
		k.saver.idle(sl)
		return true
	}
	defer turn.Give()
	sure := s.unchanged(ctx, sl)
	if sure {
		k.saver.saveOthers(ctx, sl)
		sure = s.guard.ready(ctx) == nil && !s.table.Foreign()
	}
	if !sure || ctx.Err() != nil {
		turn.Give()
		s.table.Release(sl)
		k.saver.idle(sl)
		return ctx.Err() != nil
	}
	had := sl.Prompt
	f.log.Debug("a request is sent before its tokens are known", "slot", sl.ID, "held", len(had.Tokens))
	q := &sent{
		s: s, k: k, sl: sl, visit: visitOf(r), req: req, shape: shape, prompt: bare, plan: &plan{slot: sl, kind: req.Kind(), held: len(had.Tokens)},
		x: newExchange(),
	}
	rendered := make(chan error, 1)
	f.work.Go(func() {
		<-q.x.first // before, it would take time from the answer
		ctx, cancel := context.WithTimeout(f.ctx, api.SlotTime)
		defer cancel()
		prompt, err := k.prompts.of(ctx, r, req)
		q.prompt = prompt
		rendered <- err
	})
	q.send(w, r, turn)
	q.visit.leaves()
	f.work.Go(func() { // the client need not wait for it
		q.caughtUp(f.ctx, had, <-rendered)
		q.free()
	})
	q.x.breakOff()
	return true
}

// unchanged reports whether a slot is as its last request has left it, as far as the server says. The caller has the turn.
func (s *served) unchanged(ctx context.Context, sl *slots.Slot) bool {
	if s.gone() || s.guard.own(ctx, sl) != nil {
		return false
	}
	same, slept := s.look.Unchanged(ctx, sl)
	if slept {
		s.guard.woke(ctx)
	}
	return same
}

// caughtUp does what is done before a request otherwise: what the slot had of its prompt, and what is stored of it, is known now.
func (q *sent) caughtUp(ctx context.Context, had kv.Prompt, err error) {
	s, k, sl := q.s, q.k, q.sl
	a := q.answer()
	if err != nil || q.x.status >= http.StatusBadRequest && !a.Known {
		if err != nil && !s.gone() {
			s.shared.log.Warn("making the tokens of a prompt that was sent ahead", "slot", sl.ID, "err", err)
		}
		q.prompt.Tokens = nil
		a.Known = false
		s.table.Forget(sl)
		q.ended(a)
		return
	}
	p := &plan{slot: sl, kind: q.plan.kind, held: slots.Common(had, q.prompt), near: s.table.Nearest(q.prompt, theirTokens)}
	p.parts = p.held < min(len(had.Tokens), len(q.prompt.Tokens))
	if p.parts && p.held > p.near.Common {
		p.near = slots.Nearest{Common: p.held, Theirs: slices.Clone(had.Tokens[p.held:min(p.held+theirTokens, len(had.Tokens))])}
	}
	s.table.Comes(sl, q.prompt)
	if p.held < len(had.Tokens) && !k.lay.Rolls() {
		p.held = 0
	}
	if match, err := k.restorer.lookUp(ctx, q.prompt, p); err == nil {
		match.Close()
	}
	q.plan = p
	q.part(ctx)
	switch {
	case !a.Known:
	case p.found >= a.Cached+trial.FewTokens: // a restore would have been better
		k.overtaken.Failed(p.kind)
	default:
		k.overtaken.Worked(p.kind)
	}
	q.ended(a)
}
