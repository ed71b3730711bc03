package llamaserver

import (
	"fmt"
	"net/http"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// sent is a request that is sent to its slot, and what comes of it.
type sent struct {
	s      *served
	m      *db.Model
	sl     *slot
	visit  *visit
	req    *request.Request
	shape  *request.Shape // nil: it is not told
	prompt kv.Prompt      // without tokens as long as these are not known
	plan   *plan
	x      *exchange
	before slot // what the slot was, if the server refuses
	stayed bool // the server took the slot that was leased, as far as one can tell
}

// send sends the request and waits for the end of the answer. The caller has the turn, which is given when the request works in its slot.
func (k *sent) send(w http.ResponseWriter, r *http.Request, give func()) {
	s, sl, x, ctx := k.s, k.sl, k.x, r.Context()
	k.before = s.begun(sl, k.prompt, k.req)
	var fields []string
	if k.req.Endpoint.Pins() {
		fields = append(fields, fmt.Sprintf(`"id_slot":%d`, sl.id))
	}
	if !k.req.Has("cache_prompt") {
		fields = append(fields, `"cache_prompt":true`)
	}
	if s.front.o.Attach != "" && !k.req.Has("n_cache_reuse") { // nobody may have seen whether it was started with --cache-reuse
		fields = append(fields, `"n_cache_reuse":0`)
	}
	body, after := k.req.Body, 0
	if k.req.Endpoint.Pins() {
		body = k.req.With(fields...)
	} else {
		var err error
		if after, err = s.newest(ctx); err != nil {
			s.log.Debug("looking at the slots", "err", err)
		}
	}
	setBody(r, body)
	x.header, x.sent = k.plan.header, true
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.front.forward(w, r, x)
	}()
	id := sl.id
	k.stayed = true
	var seen []api.Slot
	if k.req.Endpoint.Pins() {
		seen = s.launched(ctx, sl, x.first)
	} else if k.stayed = s.chosen(ctx, sl, after, x.first) && sl.id == id; !k.stayed {
		k.before.forget()
	}
	s.forgetEmptied(ctx, sl, seen)
	give()
	<-done
}

// answer is what the server says of its answer.
func (k *sent) answer() answered {
	a := readAnswer(k.x.kept)
	a.known = a.known && k.x.whole // an answer that says how far it is has figures in each of its parts
	return a
}

// ended learns from an answer what the slot holds, and whether the server did what was expected. What the prompt is, is known.
func (k *sent) ended(a answered) {
	s, sl, p, x, req, prompt := k.s, k.sl, k.plan, k.x, k.req, k.prompt
	if x.sent && !x.whole {
		s.mu.Lock()
		sl.left = true
		s.mu.Unlock()
	}
	s.finished(p, prompt, a)
	s.disproved(p, a)
	full := len(prompt.Tokens)+a.decoded >= s.context
	if !a.known { // the client left
		full = s.mayShift(req, len(prompt.Tokens))
	}
	if full { // its rows may have been shifted
		s.mu.Lock()
		sl.forget()
		sl.pure = -1
		s.mu.Unlock()
	}
	if soiled, _ := s.loaded.Soiled(); soiled > 0 && !req.Endpoint.Pins() && !(k.stayed && a.known && a.cached <= max(p.held, p.restored)) {
		s.mu.Lock()
		sl.forget() // the server may have gone on with rows that nobody here knows
		sl.pure = -1
		s.mu.Unlock()
	}
	if x.status >= http.StatusBadRequest && !a.known {
		s.failed(sl, k.before, x.status)
	} else if a.known {
		s.answered(k)
	}
	if k.visit != nil { // else nobody asked for it
		s.completed(k.visit, x, prompt, p, a)
	}
	k.m.Observe(p.observation(prompt, a))
}

// free gives the slot back once the server works in it no more. What was computed for a client that has gone is saved before.
func (k *sent) free() {
	if k.x.sent && !k.x.whole {
		k.s.left(k.sl)
	}
	k.s.release(k.sl)
	k.s.idle(k.sl)
}
