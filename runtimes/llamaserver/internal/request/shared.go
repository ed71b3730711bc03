package request

import (
	"context"
	"encoding/json"
)

// SharedTokens is how many leading tokens of a prompt are the system prompt, which all API keys share.
func (r *Request) SharedTokens(ctx context.Context, a Server, tokens []int32) (int, error) {
	if r.Endpoint != Chat {
		return 0, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(r.Fields["messages"], &list) != nil || len(list) == 0 {
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
	for k, v := range r.Fields {
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
	n := 0
	for n < len(tokens) && n < len(other) && tokens[n] == other[n] {
		n++
	}
	return n, nil
}
