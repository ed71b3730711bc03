package request

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
)

// Server does what only the server can.
type Server interface {
	// ApplyTemplate is the text of a chat request's messages.
	ApplyTemplate(ctx context.Context, body []byte) (string, error)
	// Tokenize makes tokens of text, special ones too, and, if asked for, with those that begin every prompt.
	Tokenize(ctx context.Context, text string, addSpecial bool) ([]int32, error)
}

// Render makes tokens of what a request asks, as the server will.
func (r *Request) Render(ctx context.Context, a Server) ([]int32, error) {
	switch r.Endpoint {
	case Completion, TextCompletion:
		return renderPrompt(ctx, a, r.Fields["prompt"])
	case Chat:
		if err := mediaIn(r.Fields["messages"]); err != nil {
			return nil, err
		}
		return renderChat(ctx, a, r.Body)
	case Responses, Messages:
		w := r.asChat()
		if w.err != nil {
			return nil, w.err
		}
		return renderChat(ctx, a, w.body)
	}
	return nil, PassEndpoint
}

func renderChat(ctx context.Context, a Server, body []byte) ([]int32, error) {
	text, err := a.ApplyTemplate(ctx, body)
	if err != nil {
		return nil, err
	}
	return a.Tokenize(ctx, text, true)
}

// renderPrompt makes tokens of a prompt: text, tokens, or a mixture; in an object, or as the only one of a list.
func renderPrompt(ctx context.Context, a Server, raw json.RawMessage) ([]int32, error) {
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || parts == nil {
		return renderOne(ctx, a, raw)
	}
	switch {
	case numberIn(parts):
		return renderMixed(ctx, a, parts)
	case len(parts) == 0:
		return nil, PassBody
	case len(parts) > 1:
		return nil, PassMany
	}
	var inner []json.RawMessage // the server takes no list of texts in a list
	if json.Unmarshal(parts[0], &inner) == nil && inner != nil && (len(inner) == 0 || !numberIn(inner)) {
		return nil, PassBody
	}
	return renderOne(ctx, a, parts[0])
}

// renderOne makes tokens of one prompt: text, a mixture of tokens and texts, or an object with one of these.
func renderOne(ctx context.Context, a Server, raw json.RawMessage) ([]int32, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, PassBody
	}
	switch raw[0] {
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, PassBody
		}
		return a.Tokenize(ctx, text, true)
	case '[':
		var parts []json.RawMessage
		if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
			return nil, PassBody
		}
		return renderMixed(ctx, a, parts)
	case '{':
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, PassBody
		}
		if _, ok := fields["multimodal_data"]; ok { // a server without media refuses it even where it is empty
			return nil, PassMedia
		}
		if text := bytes.TrimSpace(fields["prompt_string"]); len(text) > 0 && text[0] != '{' {
			return renderOne(ctx, a, text)
		}
	}
	return nil, PassBody
}

// renderMixed makes tokens of tokens and texts.
func renderMixed(ctx context.Context, a Server, parts []json.RawMessage) (out []int32, err error) {
	for i, p := range parts {
		var text string
		var id int32
		switch {
		case null(p):
			return nil, PassBody
		case json.Unmarshal(p, &id) == nil:
			out = append(out, id)
		case json.Unmarshal(p, &text) == nil:
			tokens, err := a.Tokenize(ctx, text, i == 0)
			if err != nil {
				return nil, err
			}
			out = append(out, tokens...)
		default:
			return nil, PassMany
		}
	}
	return out, nil
}

// numberIn reports whether a list has a token.
func numberIn(parts []json.RawMessage) bool {
	return slices.ContainsFunc(parts, func(p json.RawMessage) bool {
		var id int32
		return json.Unmarshal(p, &id) == nil && !null(p)
	})
}

// null reports whether a value is none.
func null(v json.RawMessage) bool { return string(bytes.TrimSpace(v)) == "null" }

// mediaIn says PassMedia where a message has an image, sound or video, and what it is where it has another part that is no text.
func mediaIn(raw json.RawMessage) error {
	var list []struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return PassBody
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
		return PassBody
	}
	for _, p := range parts {
		switch kind, _ := text(p["type"]); kind {
		case "text":
		case "image_url", "input_audio", "input_video", "audio_url", "video_url", "image", "file":
			return PassMedia
		default:
			return notUnderstood(kind)
		}
	}
	return nil
}
