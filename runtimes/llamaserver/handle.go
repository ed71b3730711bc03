package llamaserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// ServeHTTP passes a request to the server, and helps where it can.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = f.bodies.inTime(w, r)
	e := request.EndpointOf(r.URL.Path, f.args.Prefix)
	if r.Method == http.MethodPost {
		defer f.traffic.begin()()
	}
	if e == request.None || r.Method != http.MethodPost {
		f.other(w, r)
		return
	}
	v, r := f.ledger.arrives(r, f.args.Prefix)
	defer func() { v.end(f.onlyModel()) }()
	body, err := io.ReadAll(io.LimitReader(r.Body, f.o.MaxBody+1))
	if errors.Is(err, errSlow) {
		writeSlow(w)
		return
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "reading the request: "+err.Error())
		return
	}
	if int64(len(body)) > f.o.MaxBody {
		r.Body = readCloser{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		f.pass(w, r, f.servedFor(""), e, nil, request.PassLarge)
		return
	}
	body, r = f.rules.apply(e, body, r)
	setBody(r, body)
	v.client = causes.Program(v.client, body)
	req, err := request.Parse(e, body)
	model := ""
	if req != nil {
		model = f.modelOf(req)
	}
	s := f.servedFor(model)
	if err != nil {
		f.pass(w, r, s, e, body, err)
		return
	}
	f.complete(w, r, s, req, false)
}

// modelOf is the model that a request names, where the server has several.
func (f *Front) modelOf(req *request.Request) (model string) {
	if f.args.Router {
		json.Unmarshal(req.Fields["model"], &model) // the router says what is wrong with it
	}
	return model
}

// complete has a prompt computed, with what is stored of it. again: the server has begun to load its model while it was asked for this request before.
func (f *Front) complete(w http.ResponseWriter, r *http.Request, s *served, req *request.Request, again bool) {
	ctx := r.Context()
	s, k, err := f.met(w, r, s)
	if s == nil { // the request was answered, or the client has gone
		return
	}
	if err != nil {
		f.lookAgain(s, reasonOf(err))
	}
	if err == nil && k.unlike.cases.Resting(req.Kind()) {
		err = req.Unlike()
	}
	if err == nil {
		err = s.admission.admits(ctx, keyOf(r))
	}
	var shape *request.Shape
	if err == nil {
		if shape, err = request.ShapeOf(ctx, req, s.api); err == nil && f.ahead(w, r, s, k, req, shape) {
			return
		}
	}
	var prompt kv.Prompt
	if err == nil {
		prompt, err = k.prompts.of(ctx, r, req)
	}
	if api.Loading(err) && !again { // it was started anew just now
		f.lostServer()
		f.complete(w, r, f.servedFor(s.api.Model), req, true)
		return
	}
	if err == nil && len(prompt.Tokens) == 0 {
		err = request.PassBody
	}
	if err != nil {
		f.pass(w, r, s, req.Endpoint, req.Body, err)
		return
	}
	f.compute(w, r, &sent{s: s, k: k, visit: visitOf(r), req: req, shape: shape, prompt: prompt, x: newExchange()})
}

// compute has a prompt computed whose tokens are known: in a slot, in its turn, behind what is restored.
func (f *Front) compute(w http.ResponseWriter, r *http.Request, q *sent) {
	ctx, s, k, prompt := r.Context(), q.s, q.k, q.prompt
	pass := func(why error) { f.pass(w, r, s, q.req.Endpoint, q.req.Body, why) }
	sl, err := s.table.Lease(ctx, prompt)
	if err != nil {
		return // the client went
	}
	q.sl = sl
	defer func() {
		if q.x.sent && !q.x.whole { // the client has gone, and the server may still be at work
			f.work.Go(q.free)
			return
		}
		q.free()
	}()
	turn, err := s.table.Take(ctx)
	if err != nil {
		return
	}
	defer turn.Give()
	if s.gone() { // what the prompt would be computed with is something else now
		turn.Give()
		pass(request.PassHashing)
		return
	}
	if s.watch || s.table.Foreign() {
		s.look.Avoid(ctx, sl)
	}
	if err := q.clear(ctx); err != nil {
		turn.Give()
		if ctx.Err() == nil {
			pass(fmt.Errorf("%w: %w", request.PassServer, err))
		}
		return
	}
	q.plan = k.restorer.begin(ctx, sl, prompt, q.req)
	if err := s.guard.ready(ctx); err != nil { // the restored rows may be of files that the server has no more
		if q.plan.restored > 0 {
			if err := f.takeBack(s, sl); err != nil {
				turn.Give()
				f.lostServer()
				writeError(w, http.StatusServiceUnavailable, "unavailable_error", "a slot of llama-server cannot be emptied: "+err.Error())
				return
			}
		}
		turn.Give()
		pass(err)
		return
	}
	if q.plan.held == 0 && q.plan.restored == 0 && !k.restorer.withoutOthersRows(ctx, sl) {
		turn.Give()
		pass(request.PassServer)
		return
	}
	if ctx.Err() != nil { // the client went: the server hears nothing of it
		return
	}
	q.part(ctx)
	q.send(w, r, turn)
	q.ended(q.answer())
	q.x.breakOff()
}

// takeBack empties a slot into which something was restored that may be of other files.
func (f *Front) takeBack(s *served, sl *slots.Slot) error {
	s.table.Forget(sl)
	err := s.api.Erase(f.ctx, sl.ID)
	if err != nil {
		f.log.Warn("emptying a slot whose rows may be of other files", "slot", sl.ID, "err", err)
	}
	return err
}

// met waits until a model is prepared, and looks whether the server is still the one that was looked at. It returns the model as it is now, and why
// nothing is kept of it; nil if the request was answered, or its client has gone.
func (f *Front) met(w http.ResponseWriter, r *http.Request, s *served) (*served, *kept, error) {
	ctx := r.Context()
	if s = f.held(w, r, s); s == nil {
		return nil, nil, nil
	}
	k, err := s.ready()
	look := err == nil && s.watch || err != nil && f.attached() && !errors.Is(err, request.PassHashing) // a server that was refused may be gone
	if look && s.guard.replaced(ctx) {
		// Its model may be the same, whose hash is known: then that takes no time.
		if s = f.held(w, r, f.servedFor(s.api.Model)); s == nil {
			return nil, nil, nil
		}
		k, err = s.ready()
	}
	if err == nil || errors.Is(err, request.PassFiles) {
		if s, err = f.looked(w, r, s); s == nil || ctx.Err() != nil {
			return nil, nil, nil
		}
		if err == nil {
			k, err = s.ready()
		}
	}
	return s, k, err
}

// looked compares the files of a model with those that the server has loaded. Where the server has loaded other ones, it gives the state of those; nil if
// the request was answered.
func (f *Front) looked(w http.ResponseWriter, r *http.Request, s *served) (*served, error) {
	ctx := r.Context()
	err := s.files.Sound(ctx)
	_, before := s.ready()
	if err == nil && before == nil {
		err = s.guard.sameScales(ctx)
	}
	if toldAgain := err == nil && before != nil; !toldAgain && !errors.Is(err, weights.ErrAnew) {
		s.doubts(err)
		return s, err
	}
	if !s.gone() {
		f.log.Info("the server's files are looked at anew", "model", s.named())
		f.reset()
	}
	if s = f.held(w, r, f.servedFor(s.api.Model)); s == nil {
		return nil, nil
	}
	_, err = s.ready()
	return s, err
}

// reasonOf is the word for why a request was not helped.
func reasonOf(err error) request.Pass {
	var p request.Pass
	if errors.As(err, &p) {
		return p
	}
	return request.PassServer
}

// isHashing reports whether files are just being read: what is asked is known soon.
func isHashing(err error) bool { return errors.Is(err, request.PassHashing) }
