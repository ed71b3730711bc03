package request

import (
	"encoding/json"
	"maps"
)

// responsesAsChat makes the chat request that the server makes of a request to /v1/responses: instructions, texts, thoughts, functions, their calls
// and outputs. Tools that are no functions are left out.
func responsesAsChat(in fields) wording {
	if id, _ := text(in["previous_response_id"]); id != "" {
		return wording{err: notUnderstood("previous_response_id")}
	}
	var out []any
	if v, ok := in["instructions"]; ok {
		system, _ := text(v) // the server makes an empty message of anything else
		out = append(out, object{"role": "system", "content": system})
	}
	if v := in["input"]; isText(v) {
		out = append(out, object{"role": "user", "content": v})
	} else {
		items, ok := list[fields](v)
		if !ok {
			return wording{err: notUnderstood("input")}
		}
		for _, it := range items {
			var err error
			if out, err = addItem(out, it); err != nil {
				return wording{err: err}
			}
		}
	}
	more := object{} // the server hands on whatever else there is
	for key, v := range in {
		more[key] = v
	}
	maps.DeleteFunc(more, func(key string, _ any) bool {
		return key == "input" || key == "instructions" || key == "tools" || key == "reasoning"
	})
	var unsure Types
	if v, ok := in["tools"]; ok {
		tools, ok := list[fields](v)
		if !ok {
			return wording{err: notUnderstood("tools")}
		}
		var functions []any
		for _, t := range tools {
			if kind, _ := text(t["type"]); kind != "function" {
				unsure.add(kind)
				continue
			}
			delete(t, "type")
			if _, ok := t["strict"]; !ok {
				t["strict"] = json.RawMessage("true")
			}
			functions = append(functions, object{"type": "function", "function": t})
		}
		if functions != nil {
			more["tools"] = functions
		}
	}
	var reasoning fields
	if json.Unmarshal(in["reasoning"], &reasoning) == nil {
		if effort, ok := reasoning["effort"]; ok {
			more["reasoning_effort"] = effort
		}
	}
	return chatOf(out, more, unsure)
}

// addItem adds an item of the input to the messages before it. What an assistant does behind its own message becomes part of that.
func addItem(out []any, it fields) ([]any, error) {
	var last object
	if len(out) > 0 {
		if m := out[len(out)-1].(object); m["role"] == "assistant" {
			last = m
		}
	}
	kind, _ := text(it["type"])
	role, _ := text(it["role"])
	content := it["content"]
	switch {
	case (role == "user" || role == "system" || role == "developer") && (isText(content) || isList(content)):
		parts, err := inputParts(content)
		if err != nil {
			return nil, err
		}
		return append(out, message(it, role, parts)), nil
	case role == "assistant" && kind == "message":
		parts, err := outputParts(content)
		if err != nil {
			return nil, err
		}
		if last == nil {
			return append(out, message(it, role, parts)), nil
		}
		before, _ := last["content"].([]any)
		last["content"] = append(before, parts...)
		return out, nil
	case kind == "function_call" && isText(it["call_id"]) && isText(it["name"]) && isText(it["arguments"]):
		call := toolCall(it["call_id"], it["name"], it["arguments"])
		if last == nil {
			return append(out, object{"role": "assistant", "tool_calls": []any{call}}), nil
		}
		calls, _ := last["tool_calls"].([]any)
		last["tool_calls"] = append(calls, call)
		return out, nil
	case kind == "function_call_output" && isText(it["call_id"]) && (isText(it["output"]) || isList(it["output"])):
		said, err := outputOf(it["output"])
		return append(out, object{"role": "tool", "tool_call_id": it["call_id"], "content": said}), err
	case kind == "reasoning" && isList(it["summary"]):
		thought, err := thoughtOf(content)
		switch {
		case err != nil:
			return nil, err
		case last == nil:
			return append(out, object{"role": "assistant", "content": []any{}, "reasoning_content": thought}), nil
		}
		last["reasoning_content"] = thought
		return out, nil
	}
	return nil, notUnderstood(kind)
}

// message is an item as a message: what else it has stays.
func message(it fields, role string, parts []any) object {
	out := object{}
	for key, v := range it {
		out[key] = v
	}
	delete(out, "type")
	delete(out, "status")
	out["role"], out["content"] = role, parts
	return out
}

// inputParts is what was said to the model: a text, or parts of text.
func inputParts(raw json.RawMessage) ([]any, error) {
	return parts(raw, func(kind string, p fields) (any, error) {
		v, ok := p["text"]
		switch {
		case kind == "input_text" && ok:
			return textPart(v), nil
		case kind == "input_image", kind == "input_file", kind == "input_audio":
			return nil, PassMedia
		}
		return nil, notUnderstood(kind)
	})
}

// outputParts is what the model said: a text, or parts of text.
func outputParts(raw json.RawMessage) ([]any, error) {
	if !isText(raw) && !isList(raw) {
		return []any{}, nil
	}
	return parts(raw, func(kind string, p fields) (any, error) {
		if (kind == "output_text" || kind == "input_text") && isText(p["text"]) {
			return textPart(p["text"]), nil
		}
		return nil, notUnderstood(kind)
	})
}

// outputOf is what a function gave: a text, or parts of text, of which the type alone is changed.
func outputOf(raw json.RawMessage) (any, error) {
	if isText(raw) {
		return raw, nil
	}
	return parts(raw, func(kind string, p fields) (any, error) {
		switch kind {
		case "input_text":
			p["type"] = json.RawMessage(`"text"`)
			return p, nil
		case "input_image":
			return nil, PassMedia
		}
		return nil, notUnderstood(kind)
	})
}

// parts has each part of a content made another one. A text is its only part.
func parts(raw json.RawMessage, make func(kind string, p fields) (any, error)) ([]any, error) {
	out := []any{}
	if isText(raw) {
		return append(out, textPart(raw)), nil
	}
	all, ok := list[fields](raw)
	if !ok {
		return nil, notUnderstood("content")
	}
	for _, p := range all {
		kind, _ := text(p["type"])
		made, err := make(kind, p)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// thoughtOf is a thought that is handed back: the first text of its content. The server refuses a thought that is only there in an encrypted form.
func thoughtOf(content json.RawMessage) (json.RawMessage, error) {
	if isText(content) {
		return content, nil
	}
	all, ok := list[fields](content)
	if !ok || len(all) == 0 || !isText(all[0]["text"]) {
		return nil, notUnderstood("reasoning")
	}
	return all[0]["text"], nil
}
