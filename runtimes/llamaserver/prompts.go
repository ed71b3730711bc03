package llamaserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// prompts makes the prompts of requests: tokens, adapters and scope.
type prompts struct {
	api      *api.Client
	log      *slog.Logger
	byKey    bool          // each API key has a scope
	room     int           // tokens that a slot has room for
	adapters []api.Adapter // that the server has
	hashes   map[int]kv.Hash
	unlike   *unlike

	mu      sync.Mutex
	counted map[string]bool // kinds of requests of which the server has counted as many tokens as the front
}

// of makes the prompt of a request.
func (s *prompts) of(ctx context.Context, r *http.Request, req *request.Request) (p kv.Prompt, err error) {
	if p, ok := own(ctx); ok {
		return p, nil
	}
	if p.Tokens, err = req.Render(ctx, &api.Bounded{Client: s.api, Room: s.room}); err != nil {
		if api.RefusesBody(err) {
			err = req.Refused() // the server says what is wrong with it
		}
		return p, err
	}
	if err := s.counts(ctx, req, len(p.Tokens)); err != nil {
		return p, err
	}
	if len(p.Tokens) >= s.room { // of a prompt that is tokens already
		return p, request.PassLong
	}
	return s.completed(ctx, p, req, keyOf(r))
}

// completed adds adapters and scope to the tokens of a prompt.
func (s *prompts) completed(ctx context.Context, p kv.Prompt, req *request.Request, key string) (_ kv.Prompt, err error) {
	if p.Adapters, err = s.adaptersOf(req); err != nil {
		return p, err
	}
	if s.byKey {
		p.Scope = ScopeOfKey(key)
		p.ScopeStart, err = req.SharedTokens(ctx, s.api, p.Tokens)
	}
	return p, err
}

// bare is all of a prompt but its tokens.
func (s *prompts) bare(r *http.Request, req *request.Request) (p kv.Prompt, err error) {
	if p.Adapters, err = s.adaptersOf(req); err == nil && s.byKey {
		p.Scope = ScopeOfKey(keyOf(r))
	}
	return p, err
}

// maxCounted bounds for how many kinds of requests it is remembered that the server counts them as the front does.
const maxCounted = 64

// counts asks the server how many tokens a request has, where the front is not sure how the server renders it: a kind of requests is asked for once. What
// the server counts otherwise rests, as if it had computed it.
func (s *prompts) counts(ctx context.Context, req *request.Request, tokens int) error {
	if len(req.Unsure()) == 0 {
		return nil
	}
	kind := req.Kind()
	s.mu.Lock()
	known := s.counted[kind]
	s.mu.Unlock()
	if known {
		return nil
	}
	n, err := s.api.CountTokens(ctx, req)
	switch {
	case api.Unsupported(err): // this release counts nothing beforehand: what the slot has afterwards is compared, as always
	case api.RefusesBody(err):
		return req.Refused()
	case err != nil:
		return err
	case n != tokens:
		s.log.Warn("the server counts other tokens of such prompts than the front: they pass for a while", "kind", kind, "server", n, "front", tokens)
		s.unlike.cases.Rest(kind)
		return req.Unlike()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counted == nil || len(s.counted) >= maxCounted {
		s.counted = map[string]bool{}
	}
	s.counted[kind] = true
	return nil
}

// adaptersOf are the LoRA adapters that a request is computed with: its own choice, or the server's.
func (s *prompts) adaptersOf(r *request.Request) (out []kv.Adapter, err error) {
	if len(s.adapters) == 0 {
		return nil, nil
	}
	scales := map[int]float32{}
	for _, a := range s.adapters {
		scales[a.ID] = a.Scale
	}
	if r.Has("lora") {
		own, err := chosenScales(r.Fields["lora"], scales)
		if err != nil {
			return nil, err
		}
		// Releases do not agree whether an empty list is none, or those of the server, nor whether these endpoints read it at all: they need not where
		// both are the same.
		if doubt := r.Endpoint == request.Messages || r.Endpoint == request.Responses || len(own) == 0; doubt && !maps.Equal(whole(own, scales), scales) {
			return nil, request.PassAdapters
		}
		scales = whole(own, scales)
	}
	for _, a := range s.adapters {
		if scale := scales[a.ID]; scale != 0 {
			out = append(out, kv.Adapter{Hash: s.hashes[a.ID], Scale: scale})
		}
	}
	slices.SortFunc(out, func(a, b kv.Adapter) int { return slices.Compare(a.Hash[:], b.Hash[:]) })
	return out, nil
}

// whole is what a request's own adapters come to: those that it does not name are off.
func whole(own, of map[int]float32) map[int]float32 {
	out := map[int]float32{}
	for n := range of {
		out[n] = own[n]
	}
	return out
}

// chosenScales reads a request's own adapters, of those that the server has. Names are compared letter by letter, as the server does, and none may be left
// out.
func chosenScales(raw json.RawMessage, of map[int]float32) (map[int]float32, error) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, request.PassAdapters
	}
	out := map[int]float32{}
	for _, one := range list {
		var id *int
		var scale *float32
		if len(one) != 2 || json.Unmarshal(one["id"], &id) != nil || json.Unmarshal(one["scale"], &scale) != nil || id == nil || scale == nil {
			return nil, request.PassAdapters
		}
		if _, ok := of[*id]; !ok {
			return nil, request.PassAdapters
		}
		out[*id] = *scale // the last counts
	}
	return out, nil
}
