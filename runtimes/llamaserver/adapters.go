package llamaserver

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// adaptersOf are the LoRA adapters that a request is computed with: its own choice, or the server's.
func (s *served) adaptersOf(r *request) (out []kv.Adapter, err error) {
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
	if r.has("lora") {
		own, err := chosenScales(r.fields["lora"])
		if err != nil {
			return nil, err
		}
		for n := range scales { // what is not named is off
			scales[n] = 0
		}
		for n, scale := range own {
			if _, ok := scales[n]; !ok {
				return nil, passAdapters
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
		return nil, passAdapters
	}
	out := map[int]float32{}
	for _, one := range list {
		var id *int
		var scale *float32
		if len(one) != 2 || json.Unmarshal(one["id"], &id) != nil || json.Unmarshal(one["scale"], &scale) != nil || id == nil || scale == nil {
			return nil, passAdapters
		}
		out[*id] = *scale // the last counts
	}
	return out, nil
}

// sharedTokens is how many leading tokens of a prompt are the system prompt, which all API keys share.
func (r *request) sharedTokens(ctx context.Context, a *api, tokens []int32) (int, error) {
	if r.endpoint != chatCompletion {
		return 0, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(r.fields["messages"], &list) != nil || len(list) == 0 {
		return 0, nil
	}
	var role struct {
		Role string `json:"role"`
	}
	if json.Unmarshal(list[0], &role) != nil || role.Role != "system" && role.Role != "developer" {
		return 0, nil
	}
	// What two conversations with nothing in common but the system prompt begin with.
	fields := map[string]json.RawMessage{}
	for k, v := range r.fields {
		fields[k] = v
	}
	user, _ := json.Marshal(object{"role": "user", "content": "\u00b6"})
	fields["messages"], _ = json.Marshal([]json.RawMessage{list[0], user})
	body, err := json.Marshal(fields)
	if err != nil {
		return 0, err
	}
	other, err := renderChat(ctx, a, body)
	if err != nil {
		return 0, err
	}
	return common(kv.Prompt{Tokens: other}, kv.Prompt{Tokens: tokens}), nil
}
