package request

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// Request is a completion that a client asked for.
type Request struct {
	Endpoint Endpoint
	Body     []byte
	Fields   map[string]json.RawMessage

	chat *wording // what it is in the words of a chat, once somebody has asked
}

// mark is the byte order mark with which some clients begin a text. The server skips it.
var mark = []byte("\xef\xbb\xbf")

// Parse reads a body, and says with an error of type Pass why it cannot be helped. It compares values, as the server reads them: null says
// nothing, and a default that is said aloud says no more than one that is not.
func Parse(e Endpoint, body []byte) (*Request, error) {
	r := &Request{Endpoint: e, Body: bytes.TrimPrefix(body, mark)}
	if err := json.Unmarshal(r.Body, &r.Fields); err != nil || r.Fields == nil {
		return nil, PassBody // the server says what is wrong with it
	}
	if e == Messages { // the server makes a chat of it, and reads none of the fields below
		return r, nil
	}
	if r.Has("cache_prompt") {
		var cache bool
		switch {
		case json.Unmarshal(r.Fields["cache_prompt"], &cache) != nil:
			return nil, PassBody
		case !cache:
			return nil, PassOff
		}
	}
	if slot, ok := r.whole("id_slot"); ok && slot != -1 { // of anything but a number, the server says that it is the default
		return nil, PassSlot
	}
	reuse, ok := r.whole("n_cache_reuse")
	switch {
	case !ok && r.Has("n_cache_reuse") || reuse < 0:
		return nil, PassBody
	case reuse > 0:
		return nil, PassReuse
	}
	answers := "n_cmpl" // n is its other name, and is read where there is none of this one
	if !r.Has(answers) {
		answers = "n"
	}
	for _, key := range []string{answers, "best_of"} {
		if n, ok := r.whole(key); r.Has(key) && (!ok || n != 1) {
			return nil, PassMany
		}
	}
	return r, nil
}

// Fields reads a body, and asks for nothing.
func Fields(e Endpoint, body []byte) (*Request, error) {
	r := &Request{Endpoint: e, Body: bytes.TrimPrefix(body, mark)}
	if err := json.Unmarshal(r.Body, &r.Fields); err != nil || r.Fields == nil {
		return nil, PassBody
	}
	return r, nil
}

// MayShift reports whether the server may shift rows for a request, whatever else it says.
func (e Endpoint) MayShift(body []byte) bool {
	r := &Request{Endpoint: e}
	if e == Messages || json.Unmarshal(bytes.TrimPrefix(body, mark), &r.Fields) != nil {
		return false // the server reads no such field, or no such body
	}
	reuse, ok := r.whole("n_cache_reuse")
	return r.Has("n_cache_reuse") && (!ok || reuse > 0)
}

// Has reports whether a field says something.
func (r *Request) Has(key string) bool {
	v, ok := r.Fields[key]
	return ok && !null(v)
}

// whole is a field as the server reads a whole number: of a fraction what is before the point, of a truth 1 or 0. It gives false where there
// is none.
func (r *Request) whole(key string) (int, bool) {
	if !r.Has(key) {
		return 0, false
	}
	var n float64
	var truth bool
	switch v := r.Fields[key]; {
	case json.Unmarshal(v, &n) == nil && math.Abs(n) < 1<<31:
		return int(n), true
	case json.Unmarshal(v, &truth) != nil:
		return 0, false
	case truth:
		return 1, true
	}
	return 0, true
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
