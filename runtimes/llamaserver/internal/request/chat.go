package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The server renders chats for anybody (/apply-template), but neither /v1/responses nor /v1/messages: it makes chats of these first. So does
// the front, of what it knows; all else passes. What a slot holds afterwards is compared with what was rendered here.

// object is a JSON object with values that are written, or were read.
type object = map[string]any

// list reads a JSON array; of anything else, and of none, it says PassEndpoint.
func list[T any](raw json.RawMessage) (out []T, err error) {
	if json.Unmarshal(raw, &out) != nil || out == nil {
		return nil, PassEndpoint
	}
	return out, nil
}

// text reads a JSON string; of anything else, and of none, it says PassEndpoint.
func text(raw json.RawMessage) (out string, err error) {
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &out) != nil {
		return "", PassEndpoint
	}
	return out, nil
}

// isText says that a value is a string.
func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// empty says that a value is none, or says nothing.
func empty(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "", "null", "[]", "{}", `""`, `"auto"`:
		return true
	}
	return false
}

// textPart is a part of a message's content.
func textPart(t string) object { return object{"type": "text", "text": t} }

// toolCall is a call in an assistant's message. arguments are JSON as a string.
func toolCall(id, name, arguments string) object {
	return object{"id": id, "type": "function", "function": object{"name": name, "arguments": arguments}}
}

// chatBody is the chat request with these messages, and with what else a template looks at.
func chatBody(messages []any, more object) ([]byte, error) {
	body := object{"messages": messages}
	for key, v := range more {
		body[key] = v
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	return b, nil
}

// dump is a value as the server writes it: without spaces, and characters as themselves.
func dump(raw json.RawMessage) (string, error) {
	var out strings.Builder
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	type level struct {
		array bool
		n     int // values, and of an object its names
	}
	var open []level
	for {
		t, err := in.Token()
		if err != nil {
			return "", PassEndpoint
		}
		closes := t == json.Delim(']') || t == json.Delim('}')
		if last := len(open) - 1; last >= 0 && !closes {
			switch l := &open[last]; {
			case !l.array && l.n%2 == 1:
				out.WriteByte(':')
			case l.n > 0:
				out.WriteByte(',')
			}
			open[last].n++
		}
		switch t := t.(type) {
		case json.Delim:
			out.WriteRune(rune(t))
			if closes {
				open = open[:len(open)-1]
			} else {
				open = append(open, level{array: t == '['})
			}
		case string:
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(t); err != nil {
				return "", PassEndpoint
			}
		case nil:
			out.WriteString("null")
		default:
			fmt.Fprint(&out, t)
		}
		if len(open) == 0 {
			// Encode ends lines, which no string has.
			return strings.ReplaceAll(out.String(), "\n", ""), nil
		}
	}
}
