package request

import (
	"context"
	"encoding/json"
	"maps"
)

// Prefix makes tokens of all that comes before the last message of the user: the system prompt with its tools, and what was said before. Of a request
// without messages it is the prompt.
func (r *Request) Prefix(ctx context.Context, a Server) ([]int32, error) {
	if r.Endpoint == Completion || r.Endpoint == TextCompletion {
		return r.Render(ctx, a)
	}
	// What two requests with nothing in common behind that place begin with.
	var both [2][]int32
	for i, said := range []string{"\u00b6", "0"} {
		q, err := r.asking(said)
		if err != nil {
			return nil, err
		}
		if both[i], err = q.Render(ctx, a); err != nil {
			return nil, err
		}
	}
	n := 0
	for n < min(len(both[0]), len(both[1])) && both[0][n] == both[1][n] {
		n++
	}
	return both[0][:n], nil
}

// asking is the request with something else in the place of the last message of the user, and of what follows it.
func (r *Request) asking(said string) (*Request, error) {
	key, message := "messages", object{"role": "user", "content": said}
	if r.Endpoint == Responses {
		key, message = "input", object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": said}}}
	}
	var list []json.RawMessage
	if v := r.Fields[key]; r.Has(key) && !isText(v) {
		if json.Unmarshal(v, &list) != nil {
			return nil, PassBody
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		var m struct {
			Role string `json:"role"`
		}
		if json.Unmarshal(list[i], &m) == nil && m.Role == "user" {
			list = list[:i]
			break
		}
	}
	last, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	fields := maps.Clone(r.Fields)
	if fields[key], err = json.Marshal(append(list, last)); err != nil {
		return nil, err
	}
	body, err := json.Marshal(fields)
	return &Request{Endpoint: r.Endpoint, Body: body, Fields: fields}, err
}

// Guess says by its fields to which endpoint a body would be sent; None: it cannot be told.
func Guess(body []byte) Endpoint {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return None
	}
	var tools []map[string]json.RawMessage
	json.Unmarshal(fields["tools"], &tools) // of what is none there are none
	switch {
	case fields["messages"] != nil && (fields["system"] != nil || len(tools) > 0 && tools[0]["input_schema"] != nil):
		return Messages
	case fields["messages"] != nil:
		return Chat
	case fields["input"] != nil:
		return Responses
	case fields["prompt"] != nil:
		return Completion
	}
	return None
}
