package request

import (
	"encoding/json"
	"maps"
)

// responsesAsChat makes the chat request that the server makes of a request to /v1/responses: instructions, texts, functions, their calls and
// outputs.
func responsesAsChat(fields map[string]json.RawMessage) ([]byte, error) {
	for _, key := range []string{"previous_response_id", "conversation", "prompt"} {
		if !empty(fields[key]) {
			return nil, PassEndpoint
		}
	}
	var out []any
	if v := fields["instructions"]; !empty(v) {
		system, err := text(v)
		if err != nil {
			return nil, err
		}
		out = append(out, object{"role": "system", "content": system})
	}
	if v := fields["input"]; isText(v) {
		out = append(out, object{"role": "user", "content": v})
	} else {
		items, err := list[item](v)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			if out, err = it.add(out); err != nil {
				return nil, err
			}
		}
	}
	more := object{} // the server hands on whatever else there is
	for key, v := range fields {
		more[key] = v
	}
	maps.DeleteFunc(more, func(key string, _ any) bool {
		switch key {
		case "input", "instructions", "tools", "tool_choice", "reasoning", "messages", "stream":
			return true
		}
		return false
	})
	if v := fields["tools"]; !empty(v) {
		tools, err := responsesTools(v)
		if err != nil {
			return nil, err
		}
		more["tools"] = tools
	}
	if v := fields["tool_choice"]; !empty(v) {
		choice, err := text(v)
		if err != nil {
			return nil, err
		}
		more["tool_choice"] = choice
	}
	if v := fields["reasoning"]; !empty(v) {
		var reasoning map[string]json.RawMessage
		if json.Unmarshal(v, &reasoning) != nil {
			return nil, PassEndpoint
		}
		if effort := reasoning["effort"]; !empty(effort) {
			more["reasoning_effort"] = effort
		}
	}
	return chatBody(out, more)
}

// item is one of the input of /v1/responses.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// add adds an item to the messages before it. What an assistant does behind its own message becomes part of that.
func (it item) add(out []any) ([]any, error) {
	var last object
	if len(out) > 0 {
		if m := out[len(out)-1].(object); m["role"] == "assistant" {
			last = m
		}
	}
	switch {
	case (it.Type == "" || it.Type == "message") && it.Role != "":
		parts, err := itemParts(it.Content)
		if err != nil {
			return nil, err
		}
		if it.Role == "assistant" && last != nil {
			return nil, PassEndpoint
		}
		return append(out, object{"role": it.Role, "content": parts}), nil
	case it.Type == "function_call" && it.CallID != "" && it.Name != "":
		arguments, err := text(it.Arguments)
		if err != nil {
			return nil, err
		}
		call := toolCall(it.CallID, it.Name, arguments)
		if last == nil {
			return append(out, object{"role": "assistant", "tool_calls": []any{call}}), nil
		}
		calls, _ := last["tool_calls"].([]any)
		last["tool_calls"] = append(calls, call)
		return out, nil
	case it.Type == "function_call_output" && it.CallID != "":
		if isText(it.Output) {
			return append(out, object{"role": "tool", "tool_call_id": it.CallID, "content": it.Output}), nil
		}
		parts, err := itemParts(it.Output)
		return append(out, object{"role": "tool", "tool_call_id": it.CallID, "content": parts}), err
	}
	return nil, PassEndpoint
}

// itemParts is a content: a text, or parts of text.
func itemParts(raw json.RawMessage) ([]any, error) {
	if isText(raw) {
		return []any{object{"type": "text", "text": raw}}, nil
	}
	parts, err := list[block](raw)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, p := range parts {
		switch p.Type {
		case "input_text", "output_text":
			out = append(out, textPart(p.Text))
		case "input_image", "input_file", "input_audio":
			return nil, PassMedia
		default:
			return nil, PassEndpoint
		}
	}
	return out, nil
}

func responsesTools(raw json.RawMessage) ([]any, error) {
	tools, err := list[map[string]json.RawMessage](raw)
	if err != nil {
		return nil, err
	}
	var out []any
	for _, t := range tools {
		if kind, err := text(t["type"]); err != nil || kind != "function" {
			return nil, PassEndpoint
		}
		delete(t, "type")
		out = append(out, object{"type": "function", "function": t})
	}
	return out, nil
}
