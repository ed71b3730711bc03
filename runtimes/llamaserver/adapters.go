package llamaserver

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/dormousekv/dormouse/kv"
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
		if r.Endpoint == request.Messages || r.Endpoint == request.Responses { // whether the server reads it there is not documented, and releases differ
			return nil, request.PassAdapters
		}
		own, err := chosenScales(r.Fields["lora"])
		if err != nil {
			return nil, err
		}
		for n := range scales { // what is not named is off
			scales[n] = 0
		}
		for n, scale := range own {
			if _, ok := scales[n]; !ok {
				return nil, request.PassAdapters
			}
			scales[n] = scale
		}
	}
	for _, a := range list {
		if scale := scales[a.ID]; scale != 0 {
			out = append(out, kv.Adapter{Hash: id.adapters[a.ID], Scale: scale})
		}
	}
	slices.SortFunc(out, func(a, b kv.Adapter) int { return slices.Compare(a.Hash[:], b.Hash[:]) })
	return out, nil
}

// chosenScales reads a request's own adapters. Names are compared letter by letter, as the server does, and none may be left out.
func chosenScales(raw json.RawMessage) (map[int]float32, error) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, request.PassAdapters
	}
	if len(list) == 0 { // releases do not agree whether that is none, or those of the server
		return nil, request.PassAdapters
	}
	out := map[int]float32{}
	for _, one := range list {
		var id *int
		var scale *float32
		if len(one) != 2 || json.Unmarshal(one["id"], &id) != nil || json.Unmarshal(one["scale"], &scale) != nil || id == nil || scale == nil {
			return nil, request.PassAdapters
		}
		out[*id] = *scale // the last counts
	}
	return out, nil
}

// withoutOthersAdapters empties a slot of a server that has adapters: such a server may go on with rows that were computed with others.
// It gives false where that cannot be done: somebody is at work in the slot.
func (s *served) withoutOthersAdapters(ctx context.Context, sl *slot) bool {
	s.mu.Lock()
	adapted := len(s.adapters) > 0
	s.mu.Unlock()
	if !adapted {
		return true
	}
	if s.taken(ctx, sl) {
		return false
	}
	if err := s.api.erase(ctx, sl.id); err != nil && !unsupported(err) {
		s.log.Warn("emptying a slot that may hold rows of other adapters", "slot", sl.id, "err", err)
		return false
	}
	return true
}
