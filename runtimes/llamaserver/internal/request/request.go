package request

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Request is a completion that a client asked for.
type Request struct {
	Endpoint Endpoint
	Body     []byte
	Fields   map[string]json.RawMessage
}

// Parse reads a body, and says with an error of type Pass why it cannot be helped.
func Parse(e Endpoint, body []byte) (*Request, error) {
	r := &Request{Endpoint: e, Body: body}
	if err := json.Unmarshal(body, &r.Fields); err != nil || r.Fields == nil {
		return nil, PassBody // the server says what is wrong with it
	}
	var n float64
	switch {
	case !r.Bool("cache_prompt", true):
		return nil, PassOff
	case r.Has("id_slot"):
		return nil, PassSlot
	case r.Has("n_cache_reuse"):
		return nil, PassReuse
	case r.Has("n_indent") && e == Infill:
		return nil, PassEndpoint
	}
	for _, key := range []string{"n", "n_cmpl", "best_of"} {
		if r.Has(key) && (json.Unmarshal(r.Fields[key], &n) != nil || n != 1) {
			return nil, PassMany
		}
	}
	return r, nil
}

func (r *Request) Has(key string) bool {
	v, ok := r.Fields[key]
	return ok && string(bytes.TrimSpace(v)) != "null"
}

func (r *Request) Bool(key string, otherwise bool) bool {
	var b bool
	if r.Has(key) && json.Unmarshal(r.Fields[key], &b) == nil {
		return b
	}
	return otherwise
}

// With is the body with further fields behind the client's own: of two with one name, the server takes the last.
func (r *Request) With(fields ...string) []byte {
	end := bytes.LastIndexByte(r.Body, '}')
	add := strings.Join(fields, ",")
	if len(r.Fields) > 0 && add != "" {
		add = "," + add
	}
	out := make([]byte, 0, len(r.Body)+len(add))
	return append(append(append(out, r.Body[:end]...), add...), r.Body[end:]...)
}
