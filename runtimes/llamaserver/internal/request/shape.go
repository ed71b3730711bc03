package request

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
)

// Shape is what of a request decides its prompt: the text, or the chat that the template is given, as the server makes it of any endpoint's request.
type Shape struct {
	endpoint Endpoint
	text     string // of a prompt that is one text
	fields   map[string]json.RawMessage
	messages []json.RawMessage
}

// maxShape is how large a body may be whose shape is kept.
const maxShape = 8 << 20

// unshaping are fields that no template reads and no tokenizer: how an answer is sampled, how long it is, how it is sent, and whose it is. A request that says
// another value of one of them has the same prompt.
var unshaping = map[string]bool{}

func init() {
	for name := range strings.FieldsSeq(`
		stream stream_options max_tokens max_completion_tokens max_output_tokens n_predict temperature top_p top_k min_p typical_p seed stop logprobs top_logprobs
		n_probs presence_penalty frequency_penalty repeat_penalty repeat_last_n logit_bias cache_prompt id_slot timings_per_token return_progress user metadata store
		service_tier safety_identifier prompt_cache_key`) {
		unshaping[name] = true
	}
}

// ShapeOf is the shape of a request. It gives an error of type Pass where the request cannot be rendered, and nil without an error where no shape is
// told: of prompts that are more than one text, and of very large ones.
func ShapeOf(ctx context.Context, r *Request, a Server) (*Shape, error) {
	if len(r.Body) > maxShape {
		return nil, nil
	}
	rec := &recorder{Server: a}
	if _, err := r.Render(ctx, rec); err != nil && !errors.Is(err, errRecorded) {
		return nil, err
	}
	s := &Shape{endpoint: r.Endpoint}
	switch {
	case rec.chat != nil:
		if json.Unmarshal(rec.chat, &s.fields) != nil || json.Unmarshal(s.fields["messages"], &s.messages) != nil {
			return nil, nil
		}
		delete(s.fields, "messages")
	case rec.said && isText(bytes.TrimSpace(r.Fields["prompt"])):
		s.text, s.fields = rec.text, maps.Clone(r.Fields)
		delete(s.fields, "prompt")
	default:
		return nil, nil
	}
	maps.DeleteFunc(s.fields, func(name string, _ json.RawMessage) bool { return unshaping[name] })
	return s, nil
}

// Extends reports whether a request is another one with more behind it: the same chat with further messages, or the same text with further text, and all
// else equal. It gives how many bytes are new, and how many messages.
func (s *Shape) Extends(before *Shape) (more, messages int, ok bool) {
	if s.endpoint != before.endpoint || len(s.messages) < len(before.messages) || !strings.HasPrefix(s.text, before.text) || len(s.fields) != len(before.fields) {
		return 0, 0, false
	}
	for name, v := range s.fields {
		if w, there := before.fields[name]; !there || !bytes.Equal(v, w) && !alike(v, w) {
			return 0, 0, false
		}
	}
	for i, m := range before.messages {
		if !bytes.Equal(m, s.messages[i]) && !alike(m, s.messages[i]) {
			return 0, 0, false
		}
	}
	more = len(s.text) - len(before.text)
	for _, m := range s.messages[len(before.messages):] {
		more += len(m)
	}
	return more, len(s.messages) - len(before.messages), true
}

// Bytes is how long that is of which the prompt is made.
func (s *Shape) Bytes() int {
	n := len(s.text)
	for _, v := range s.fields {
		n += len(v)
	}
	for _, m := range s.messages {
		n += len(m)
	}
	return n
}

// IsText says that the prompt is a text, and no chat: then its last token may be another one where more text follows.
func (s *Shape) IsText() bool { return s.messages == nil }

// alike reports whether two values are the same but for marks of what a client wants cached: clients move these with every request, and no template reads
// them.
func alike(a, b json.RawMessage) bool {
	mark := []byte(`"cache_control"`)
	if !bytes.Contains(a, mark) && !bytes.Contains(b, mark) {
		return false
	}
	return reflect.DeepEqual(unmarked(a), unmarked(b))
}

func unmarked(raw json.RawMessage) any {
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	var v any
	if in.Decode(&v) != nil {
		return raw
	}
	list, ok := v.([]any) // tools
	if m, isMessage := v.(object); isMessage {
		list, _ = m["content"].([]any)
	} else if !ok {
		return v
	}
	for _, part := range list {
		if m, ok := part.(object); ok {
			delete(m, "cache_control")
		}
	}
	return v
}

// recorder takes what the server would be asked to render, and asks nothing.
type recorder struct {
	Server
	chat []byte
	text string
	said bool
}

var errRecorded = errors.New("what would be rendered is recorded")

func (r *recorder) ApplyTemplate(_ context.Context, body []byte) (string, error) {
	r.chat = body
	return "", errRecorded
}

func (r *recorder) Tokenize(_ context.Context, text string, _ bool) ([]int32, error) {
	r.text, r.said = text, true
	return nil, errRecorded
}
