package llamaserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// adaptersOf are the LoRA adapters that a request is computed with: its own choice, or the server's.
func (s *served) adaptersOf(r *request.Request) (out []kv.Adapter, err error) {
	s.mu.Lock()
	list, id := s.adapters, s.id
	s.mu.Unlock()
	if len(list) == 0 {
		return nil, nil
	}
	scales := map[int]float32{}
	for _, a := range list {
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
	for _, a := range list {
		if scale := scales[a.ID]; scale != 0 {
			out = append(out, kv.Adapter{Hash: id.Adapters[a.ID], Scale: scale})
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

// adapt has a token computed in a slot with the adapters of a request, if the last one in the slot had others, or nobody knows: the server throws
// away what a slot holds when its adapters change, and would throw away what is to be restored.
func (s *served) adapt(ctx context.Context, sl *slot, prompt kv.Prompt, req *request.Request) error {
	s.mu.Lock()
	adapted := len(s.adapters) == 0 || sl.adapted && slices.Equal(sl.adapters, prompt.Adapters)
	s.mu.Unlock()
	if adapted {
		return nil
	}
	var lora json.RawMessage
	if req.Has("lora") && req.Endpoint.Pins() {
		lora = req.Fields["lora"]
	}
	if err := s.api.Adapt(ctx, sl.id, prompt.Tokens[0], lora); err != nil {
		return fmt.Errorf("having a slot take the adapters of a request: %w", err)
	}
	s.mu.Lock()
	sl.forget()
	sl.adapters, sl.adapted = prompt.Adapters, true
	s.mu.Unlock()
	s.forgetEmptied(ctx, sl, nil)
	return nil
}

// withoutOthersRows empties a slot of which nothing is known where the server may go on with rows that are not those of the prompt: of a server with adapters,
// with rows that were computed with others; else if it is soiled. It gives false where that cannot be done: somebody is at work in the slot.
func (s *served) withoutOthersRows(ctx context.Context, sl *slot) bool {
	soiled, _ := s.loaded.Soiled()
	s.mu.Lock()
	clean := len(s.adapters) == 0 && sl.pure == soiled
	s.mu.Unlock()
	if clean {
		return true
	}
	if s.taken(ctx, sl) {
		return false
	}
	if err := s.api.Erase(ctx, sl.id); err != nil && !api.Unsupported(err) {
		s.log.Warn("emptying a slot that may hold rows of other adapters, or shifted ones", "slot", sl.id, "err", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.prompt, sl.unsaved, sl.pure = kv.Prompt{}, false, soiled
	return true
}
