package llamaserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
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
	v, r := f.arrives(r)
	defer v.end()
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
	if req != nil && f.args.Router {
		json.Unmarshal(req.Fields["model"], &model) // the router says what is wrong with it
	}
	s := f.servedFor(model)
	if err != nil {
		f.pass(w, r, s, e, body, err)
		return
	}
	f.complete(w, r, s, req, false)
}

// complete has a prompt computed, with what is stored of it. again: the server has begun to load its model while it was asked for this request before.
func (f *Front) complete(w http.ResponseWriter, r *http.Request, s *served, req *request.Request, again bool) {
	ctx := r.Context()
	if s = f.held(w, r, s); s == nil {
		return
	}
	m, lay, err := s.ready()
	look := err == nil && s.watch || err != nil && s.front.o.Attach != "" && !errors.Is(err, request.PassHashing) // a server that was refused may be gone
	if look && s.replaced(ctx) {
		// Its model may be the same, whose hash is known: then that takes no time.
		if s = f.held(w, r, f.servedFor(s.api.Model)); s == nil {
			return
		}
		m, lay, err = s.ready()
	}
	if err == nil || errors.Is(err, request.PassFiles) {
		if s, err = f.looked(w, r, s); s == nil || ctx.Err() != nil {
			return
		}
		if err == nil {
			m, lay, err = s.ready()
		}
	}
	if err != nil {
		f.lookAgain(s, reasonOf(err))
	}
	if err == nil {
		kind := req.Kind()
		s.mu.Lock()
		if s.differ.Resting(kind) {
			err = req.Unlike()
		}
		s.mu.Unlock()
	}
	if err == nil {
		err = s.admits(ctx, keyOf(r))
	}
	var shape *request.Shape
	if err == nil {
		if shape, err = request.ShapeOf(ctx, req, s.api); err == nil && f.ahead(w, r, s, m, lay, req, shape) {
			return
		}
	}
	var prompt kv.Prompt
	if err == nil {
		prompt, err = s.prompt(ctx, r, req)
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
	sl, err := s.lease(ctx, prompt)
	if err != nil {
		return // the client went
	}
	x := &exchange{first: make(chan struct{})}
	k := &sent{s: s, m: m, sl: sl, visit: visitOf(r), req: req, shape: shape, prompt: prompt, x: x}
	defer func() {
		if x.sent && !x.whole { // the client has gone, and the server may still be at work
			f.work.Go(k.free)
			return
		}
		k.free()
	}()
	if s.take(ctx) != nil {
		return
	}
	if s.gone.Load() { // what the prompt would be computed with is something else now
		s.give()
		f.pass(w, r, s, req.Endpoint, req.Body, request.PassHashing)
		return
	}
	gave := false
	give := func() {
		if !gave {
			gave = true
			s.give()
		}
	}
	defer give()
	if s.watch || s.busyElsewhere() {
		s.avoid(ctx, sl)
	}
	only := sl
	if !req.Endpoint.Pins() {
		only = nil
	}
	if _, err := s.apart(ctx, only, prompt, true); err != nil {
		give()
		if ctx.Err() == nil {
			f.pass(w, r, s, req.Endpoint, req.Body, fmt.Errorf("%w: %w", request.PassServer, err))
		}
		return
	}
	p := s.begin(ctx, m, lay, sl, prompt, req)
	err = s.loaded.Sound(ctx)
	if err == nil && s.gone.Load() {
		err = request.PassHashing
	}
	if err != nil { // the restored rows may be of files that the server has no more
		if p.restored > 0 {
			s.mu.Lock()
			sl.forget()
			s.mu.Unlock()
			if err := s.api.Erase(s.front.ctx, sl.id); err != nil {
				s.log.Warn("emptying a slot whose rows may be of other files", "slot", sl.id, "err", err)
				give()
				f.lostServer()
				writeError(w, http.StatusServiceUnavailable, "unavailable_error", "a slot of llama-server cannot be emptied: "+err.Error())
				return
			}
		}
		give()
		f.pass(w, r, s, req.Endpoint, req.Body, err)
		return
	}
	if p.held == 0 && p.restored == 0 && !s.withoutOthersRows(ctx, sl) {
		give()
		f.pass(w, r, s, req.Endpoint, req.Body, request.PassServer)
		return
	}
	if ctx.Err() != nil { // the client went: the server hears nothing of it
		return
	}
	p.parted = s.parted(ctx, m, p, prompt, r, req)
	k.plan = p
	k.send(w, r, give)
	k.ended(k.answer())
	x.breakOff()
}

// looked compares the files of a model with those that the server has loaded. Where the server has loaded other ones, it gives the state of those; nil if
// the request was answered.
func (f *Front) looked(w http.ResponseWriter, r *http.Request, s *served) (*served, error) {
	ctx := r.Context()
	err := s.loaded.Sound(ctx)
	_, _, before := s.ready()
	if err == nil && before == nil {
		err = s.sameScales(ctx)
	}
	if toldAgain := err == nil && before != nil; !toldAgain && !errors.Is(err, weights.ErrAnew) {
		s.mu.Lock()
		s.doubt = err
		s.mu.Unlock()
		return s, err
	}
	if !s.gone.Load() {
		f.log.Info("the server's files are looked at anew", "model", s.named())
		f.reset()
	}
	if s = f.held(w, r, f.servedFor(s.api.Model)); s == nil {
		return nil, nil
	}
	_, _, err = s.ready()
	return s, err
}

// admits gives an error unless the server takes an API key: until it does, nothing is done for a request, and nothing said of what is stored.
func (s *served) admits(ctx context.Context, key string) error {
	if s.api.Key == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(key))
	s.mu.Lock()
	known := s.admitted[sum]
	s.mu.Unlock()
	if known {
		return nil
	}
	with := *s.api
	with.Key = key
	if _, err := with.Tokenize(ctx, "", false); err != nil {
		if api.Loading(err) {
			return err
		}
		return request.PassKey // the server says that it does not take it
	}
	s.mu.Lock()
	s.admitted[sum] = true
	s.mu.Unlock()
	return nil
}

// prompt makes the prompt of a request: its tokens, adapters and scope.
func (s *served) prompt(ctx context.Context, r *http.Request, req *request.Request) (p kv.Prompt, err error) {
	if p, ok := own(ctx); ok {
		return p, nil
	}
	if p.Tokens, err = req.Render(ctx, &api.Bounded{Client: s.api, Room: s.context}); err != nil {
		if api.RefusesBody(err) {
			err = req.Refused() // the server says what is wrong with it
		}
		return p, err
	}
	if err := s.counts(ctx, req, len(p.Tokens)); err != nil {
		return p, err
	}
	if len(p.Tokens) >= s.context { // of a prompt that is tokens already
		return p, request.PassLong
	}
	if p.Adapters, err = s.adaptersOf(req); err != nil {
		return p, err
	}
	if s.front.o.ScopeByKey {
		p.Scope = ScopeOfKey(keyOf(r))
		if p.ScopeStart, err = req.SharedTokens(ctx, s.api, p.Tokens); err != nil {
			return p, err
		}
	}
	return p, nil
}

// ScopeOfKey is the scope of requests with an API key.
func ScopeOfKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key:" + hex.EncodeToString(sum[:16])
}

func keyOf(r *http.Request) string {
	key := r.Header.Get("Authorization") // as the server reads it
	if key == "" {
		key = r.Header.Get("X-Api-Key")
	}
	return strings.TrimPrefix(key, "Bearer ")
}

// pass hands a request on that may work in any slot.
func (f *Front) pass(w http.ResponseWriter, r *http.Request, s *served, e request.Endpoint, body []byte, why error) {
	if _, ours := own(r.Context()); ours { // in a slot of the server's choice it would not be kept
		writeError(w, http.StatusServiceUnavailable, "unavailable_error", reasonOf(why).Error())
		return
	}
	f.glance(r.Context())
	reason := reasonOf(why)
	if e != request.None {
		f.log.Debug("passing a request", "endpoint", e, "reason", reason, "err", why)
	}
	if body != nil {
		setBody(r, body)
	}
	soils := e != request.None && (body == nil || e.MayShift(body))
	types := typesOf(why)
	says := "pass; reason=" + string(reason)
	if types != "" {
		says += "; type=" + types
	}
	x := &exchange{first: make(chan struct{}), header: func(answered) string { return says }}
	if _, _, err := s.ready(); err != nil || s.gone.Load() { // nothing of it is in a slot that was saved, or will be
		if f.o.ScopeByKey {
			uncached(r, e, body)
		}
		if soils {
			defer s.loaded.Soils()()
		}
		f.forward(w, r, x)
	} else {
		apart := func() {
			if f.o.ScopeByKey {
				s.apartForPass(r.Context(), r, e, body)
			}
		}
		s.passThrough(r.Context(), x, soils, ScopeOfKey(keyOf(r)), apart, func() { f.forward(w, r, x) })
	}
	if v := visitOf(r); v != nil {
		s.passedBy(v, x, reason, types)
	}
	x.breakOff()
}
