package request

import (
	"bytes"
	"context"
	"encoding/json"
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
	case Responses:
		body, err := responsesAsChat(r.Fields)
		if err != nil {
			return nil, err
		}
		return renderChat(ctx, a, body)
	case Messages:
		body, err := messagesAsChat(r.Fields)
		if err != nil {
			return nil, err
		}
		return renderChat(ctx, a, body)
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

// renderPrompt makes tokens of a prompt: text, tokens, or a mixture.
func renderPrompt(ctx context.Context, a Server, raw json.RawMessage) ([]int32, error) {
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
	case '{':
		return nil, PassMedia
	case '[':
	default:
		return nil, PassBody
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		return nil, PassBody
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
			tokens, err := a.Tokenize(ctx, text, i == 0)
			if err != nil {
				return nil, err
			}
			out = append(out, tokens...)
		default:
			return nil, PassMany
		}
	}
	if !numbers { // texts alone are a prompt each
		if len(parts) > 1 {
			return nil, PassMany
		}
	}
	return out, nil
}

// mediaIn says PassMedia where a message has a part that is no text.
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
		if string(p["type"]) != `"text"` {
			return PassMedia
		}
	}
	return nil
}
