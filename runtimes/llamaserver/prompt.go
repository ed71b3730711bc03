package llamaserver

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
)

// endpoint is a kind of request that computes a prompt.
type endpoint int

const (
	noCompletion   endpoint = iota
	completion              // /completion, /completions: a prompt
	textCompletion          // /v1/completions: a prompt
	chatCompletion          // /v1/chat/completions: messages
	responses               // /v1/responses: input
	messages                // /v1/messages: the system prompt apart
	infill                  // /infill: what is before and after
)

func (e endpoint) String() string {
	return [...]string{"other", "completion", "completions", "chat", "responses", "messages", "infill"}[e]
}

// endpointOf says what a path means, under the server's prefix.
func endpointOf(path, prefix string) endpoint {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return noCompletion
	}
	switch rest {
	case "/completion", "/completions":
		return completion
	case "/v1/completions":
		return textCompletion
	case "/chat/completions", "/v1/chat/completions", "/api/chat":
		return chatCompletion
	case "/responses", "/v1/responses":
		return responses
	case "/v1/messages":
		return messages
	case "/infill":
		return infill
	}
	return noCompletion
}

// pins reports whether the server takes id_slot from such a request.
func (e endpoint) pins() bool { return e != messages }

// passed says why a request goes to the server as it is.
type passed string

func (p passed) Error() string { return string(p) }

// Reasons of requests that are not looked up. figures.Words has them for people.
const (
	passMedia    passed = "media"
	passMany     passed = "several_answers"
	passOff      passed = "lookup_off"
	passSlot     passed = "slot_chosen"
	passReuse    passed = "rows_shifted"
	passStore    passed = "no_store"
	passModel    passed = "unknown_model"
	passHashing  passed = "model_being_read"
	passArgs     passed = "server_arguments"
	passRows     passed = "other_rows"
	passSlots    passed = "slots_not_saved"
	passDiffers  passed = "rendered_otherwise"
	passBody     passed = "not_understood"
	passAdapters passed = "adapters"
	passEndpoint passed = "unknown_endpoint"
	passServer   passed = "server_failed"
)

// request is a completion that a client asked for.
type request struct {
	endpoint endpoint
	body     []byte
	fields   map[string]json.RawMessage
}

// parseRequest reads a body, and says with an error of type passed why it cannot be helped.
func parseRequest(e endpoint, body []byte) (*request, error) {
	r := &request{endpoint: e, body: body}
	if err := json.Unmarshal(body, &r.fields); err != nil || r.fields == nil {
		return nil, passBody // the server says what is wrong with it
	}
	var n float64
	switch {
	case !r.bool("cache_prompt", true):
		return nil, passOff
	case r.has("id_slot"):
		return nil, passSlot
	case r.has("n_cache_reuse"):
		return nil, passReuse
	case r.has("n_indent") && e == infill:
		return nil, passEndpoint
	}
	for _, key := range []string{"n", "n_cmpl", "best_of"} {
		if r.has(key) && (json.Unmarshal(r.fields[key], &n) != nil || n != 1) {
			return nil, passMany
		}
	}
	return r, nil
}

func (r *request) has(key string) bool {
	v, ok := r.fields[key]
	return ok && string(bytes.TrimSpace(v)) != "null"
}

func (r *request) bool(key string, otherwise bool) bool {
	var b bool
	if r.has(key) && json.Unmarshal(r.fields[key], &b) == nil {
		return b
	}
	return otherwise
}

// with is the body with further fields behind the client's own: of two with one name, the server takes the last.
func (r *request) with(fields ...string) []byte {
	end := bytes.LastIndexByte(r.body, '}')
	add := strings.Join(fields, ",")
	if len(r.fields) > 0 && add != "" {
		add = "," + add
	}
	out := make([]byte, 0, len(r.body)+len(add))
	return append(append(append(out, r.body[:end]...), add...), r.body[end:]...)
}

// render makes tokens of what a request asks, as the server will.
func (r *request) render(ctx context.Context, a *api) ([]int32, error) {
	switch r.endpoint {
	case completion, textCompletion:
		return renderPrompt(ctx, a, r.fields["prompt"])
	case chatCompletion:
		if err := mediaIn(r.fields["messages"]); err != nil {
			return nil, err
		}
		return renderChat(ctx, a, r.body)
	case responses:
		body, err := responsesAsChat(r.fields)
		if err != nil {
			return nil, err
		}
		return renderChat(ctx, a, body)
	case messages:
		body, err := messagesAsChat(r.fields)
		if err != nil {
			return nil, err
		}
		return renderChat(ctx, a, body)
	}
	return nil, passEndpoint
}

func renderChat(ctx context.Context, a *api, body []byte) ([]int32, error) {
	text, err := a.applyTemplate(ctx, body)
	if err != nil {
		return nil, err
	}
	return a.tokenize(ctx, text, true)
}

// renderPrompt makes tokens of a prompt: text, tokens, or a mixture.
func renderPrompt(ctx context.Context, a *api, raw json.RawMessage) ([]int32, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, passBody
	}
	switch raw[0] {
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, passBody
		}
		return a.tokenize(ctx, text, true)
	case '{':
		return nil, passMedia
	case '[':
	default:
		return nil, passBody
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		return nil, passBody
	}
	var out []int32
	numbers := false
	for i, p := range parts {
		var text string
		var id int32
		switch {
		case json.Unmarshal(p, &id) == nil:
			out, numbers = append(out, id), true
		case json.Unmarshal(p, &text) == nil:
			tokens, err := a.tokenize(ctx, text, i == 0)
			if err != nil {
				return nil, err
			}
			out = append(out, tokens...)
		default:
			return nil, passMany
		}
	}
	if !numbers { // texts alone are a prompt each
		if len(parts) > 1 {
			return nil, passMany
		}
	}
	return out, nil
}

// mediaIn says passMedia where a message has a part that is no text.
func mediaIn(raw json.RawMessage) error {
	var list []struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return passBody
	}
	for _, m := range list {
		if err := mediaInContent(m.Content); err != nil {
			return err
		}
	}
	return nil
}

func mediaInContent(raw json.RawMessage) error {
	var parts []map[string]json.RawMessage // names letter by letter: Type is not type
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	if json.Unmarshal(raw, &parts) != nil {
		return passBody
	}
	for _, p := range parts {
		if string(p["type"]) != `"text"` {
			return passMedia
		}
	}
	return nil
}
