package llamaserver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
)

// sent is a request that is sent to its slot, and what comes of it.
type sent struct {
	s      *served
	k      *kept
	sl     *slots.Slot
	visit  *visit
	req    *request.Request
	shape  *request.Shape // nil: it is not told
	prompt kv.Prompt      // without tokens as long as these are not known
	plan   *plan
	x      *exchange
	before slots.Slot // what the slot was, if the server refuses
	stayed bool       // the server took the slot that was leased, as far as one can tell
}

// clear empties the slot of what the request may not reuse. If it cannot name its slot, it may get any. The caller has the turn.
func (q *sent) clear(ctx context.Context) error {
	only := q.sl
	if !q.req.Endpoint.Pins() {
		only = nil
	}
	_, err := q.k.apart.clear(ctx, only, q.prompt, true)
	return err
}

// part finds out where the prompt parts from the nearest one.
func (q *sent) part(ctx context.Context) {
	expected, _ := q.plan.reused(answer.Answer{})
	q.plan.parted = q.k.partings.find(ctx, expected, q.plan.near, q.prompt, q.visit, q.req)
}

// send sends the request and waits for the end of the answer. The caller has the turn, which is given when the request works in its slot.
func (q *sent) send(w http.ResponseWriter, r *http.Request, turn *slots.Turn) {
	s, sl, x, ctx := q.s, q.sl, q.x, r.Context()
	q.before = s.table.Begun(sl, q.prompt, q.req)
	var fields []string
	if q.req.Endpoint.Pins() {
		fields = append(fields, fmt.Sprintf(`"id_slot":%d`, sl.ID))
	}
	if !q.req.Has("cache_prompt") {
		fields = append(fields, `"cache_prompt":true`)
	}
	if s.shared.attached() && !q.req.Has("n_cache_reuse") { // nobody may have seen whether it was started with --cache-reuse
		fields = append(fields, `"n_cache_reuse":0`)
	}
	body, after := q.req.Body, 0
	if q.req.Endpoint.Pins() {
		body = q.req.With(fields...)
	} else {
		after = s.look.Newest(ctx)
	}
	setBody(r, body)
	x.header, x.sent = q.plan.header, true
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.forward(s.shared.proxy, w, r)
	}()
	id := sl.ID
	q.stayed = true
	var seen []api.Slot
	if q.req.Endpoint.Pins() {
		seen = s.look.Launched(ctx, sl, x.first)
	} else if q.stayed = s.look.Chosen(ctx, sl, after, x.first) && sl.ID == id; !q.stayed {
		q.before = q.before.Forgotten()
	}
	s.look.ForgetEmptied(ctx, sl, seen)
	turn.Give()
	<-done
}

// answer is what the server says of its answer.
func (q *sent) answer() answer.Answer {
	a := answer.Read(q.x.kept)
	a.Known = a.Known && q.x.whole // an answer that says how far it is has figures in each of its parts
	return a
}

// ended learns from an answer what the slot holds, and whether the server did what was expected. What the prompt is, is known.
func (q *sent) ended(a answer.Answer) {
	s, sl, p, x, req, prompt := q.s, q.sl, q.plan, q.x, q.req, q.prompt
	if x.sent && !x.whole {
		s.table.Leaves(sl)
	}
	q.k.restorer.finished(p, prompt, a)
	q.k.restorer.disproved(p, a)
	full := len(prompt.Tokens)+a.Decoded >= q.k.room
	if !a.Known { // the client left
		full = q.mayShift()
	}
	if full { // its rows may have been shifted
		s.table.Soil(sl)
	}
	if soiled, _ := s.files.Soiled(); soiled > 0 && !req.Endpoint.Pins() && !(q.stayed && a.Known && a.Cached <= max(p.held, p.restored)) {
		s.table.Soil(sl) // the server may have gone on with rows that nobody here knows
	}
	if x.status >= http.StatusBadRequest && !a.Known {
		s.table.Failed(sl, q.before, x.status)
	} else if a.Known {
		s.table.Answered(sl, q.shape, p.held > 0 && p.held == len(q.before.Prompt.Tokens), p.restored > 0)
	}
	if q.visit != nil { // else nobody asked for it
		q.k.counter.completed(q.visit, x, prompt, p, a)
	}
	q.k.model.Observe(p.observation(prompt, a))
}

// mayShift reports whether the server may have shifted rows for a request whose end nobody has seen: it does, if it was asked to, when an answer fills
// the context. Of a server that somebody else has started nobody knows whether it was.
func (q *sent) mayShift() bool {
	if !q.s.args.Shifts && !q.s.shared.attached() {
		return false
	}
	most, bounded := q.req.MostTokens()
	return !bounded || len(q.prompt.Tokens)+most+2 >= q.k.room
}

// free gives the slot back once the server works in it no more. What was computed for a client that has gone is saved before.
func (q *sent) free() {
	if q.x.sent && !q.x.whole {
		q.k.saver.left(q.sl)
	}
	q.s.table.Release(q.sl)
	q.k.saver.idle(q.sl)
}
