package request

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The server renders chats for anybody (/apply-template), but neither /v1/responses nor /v1/messages: it makes chats of these first. So does
// the front, as the server's newest release does it; what it does not know passes. What a slot holds afterwards is compared with what was rendered
// here. Where releases are known to differ, the server is asked for its own count before: those parts are [Request.Unsure].

// object is a JSON object with values that are written, or were read.
type object = map[string]any

// fields are the values of a JSON object. Names are compared letter by letter, as the server does.
type fields = map[string]json.RawMessage

// wording is a request in the words of a chat.
type wording struct {
	body   []byte
	unsure Types
	err    error
}

// asChat makes the chat request that the server makes of a request, once.
func (r *Request) asChat() *wording {
	if r.chat == nil {
		w := wording{}
		switch r.Endpoint {
		case Responses:
			w = responsesAsChat(r.Fields)
		case Messages:
			w = messagesAsChat(r.Fields)
		default:
			w.body = r.Body
		}
		r.chat = &w
	}
	return r.chat
}

// Unsure are the types of a request's parts that releases of the server are known to treat differently: tools that are no functions, and parts that
// the newest one leaves out. The front does as the newest one does.
func (r *Request) Unsure() Types { return r.asChat().unsure }

// Unlike is why a request passes which the server renders in another way than the front, or refuses to.
func (r *Request) Unlike() error {
	if t := r.Unsure(); len(t) > 0 {
		return Because{PassTools, t}
	}
	return PassDiffers
}

// Refused is why a request passes whose messages the server refuses to render.
func (r *Request) Refused() error {
	t := r.Unsure()
	if r.Endpoint == Chat {
		tools, _ := list[fields](r.Fields["tools"])
		for _, tool := range tools {
			if kind, _ := text(tool["type"]); kind != "function" {
				t.add(kind)
			}
		}
	}
	if len(t) > 0 {
		return Because{PassTools, t}
	}
	return PassBody
}

// list reads a JSON array. It gives false for anything else.
func list[T any](raw json.RawMessage) (out []T, ok bool) {
	return out, json.Unmarshal(raw, &out) == nil && out != nil
}

// text reads a JSON string. Anything else is none.
func text(raw json.RawMessage) (out string, ok bool) {
	return out, isText(raw) && json.Unmarshal(raw, &out) == nil
}

// isText says that a value is a string.
func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// isList says that a value is an array.
func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }

// empty says that a value is none, or says nothing.
func empty(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "", "null", "[]", "{}", `""`, `"auto"`:
		return true
	}
	return false
}

// textPart is a part of a message's content.
func textPart(t any) object { return object{"type": "text", "text": t} }

// toolCall is a call in an assistant's message. arguments are JSON as a string.
func toolCall(id, name, arguments any) object {
	return object{"id": id, "type": "function", "function": object{"name": name, "arguments": arguments}}
}

// chatOf is the chat request with these messages, and with what else a template looks at.
func chatOf(messages []any, more object, unsure Types) wording {
	more["messages"] = messages
	if messages == nil {
		more["messages"] = []any{}
	}
	b, err := json.Marshal(more)
	if err != nil {
		return wording{err: fmt.Errorf("rendering: %w", err)}
	}
	return wording{body: b, unsure: unsure}
}
