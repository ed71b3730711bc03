package request

import (
	"encoding/json"
	"strings"
)

// messagesAsChat makes the chat request that the server makes of a request to /v1/messages: system prompt, texts, thoughts, tools, their calls
// and results. Parts of other types are left out.
func messagesAsChat(in fields) wording {
	var out []any
	var unsure Types
	if v, ok := in["system"]; ok && !null(v) {
		out = append(out, object{"role": "system", "content": systemText(v, &unsure)})
	}
	items, ok := list[json.RawMessage](in["messages"])
	if !ok {
		return wording{err: notUnderstood("messages")}
	}
	for _, raw := range items {
		var m fields
		if json.Unmarshal(raw, &m) != nil || m == nil {
			return wording{err: notUnderstood("message")}
		}
		role, _ := text(m["role"])
		switch content, ok := m["content"]; {
		case !ok && role == "assistant": // it says nothing
		case !isList(content):
			out = append(out, raw)
		default:
			more, err := blocks(role, content, &unsure)
			if err != nil {
				return wording{err: err}
			}
			out = append(out, more...)
		}
	}
	more := object{}
	if v, ok := in["tools"]; ok && isList(v) {
		tools, ok := list[fields](v)
		if !ok {
			return wording{err: notUnderstood("tools")}
		}
		more["tools"] = messagesTools(tools, &unsure)
	}
	var choice, thinking fields
	if json.Unmarshal(in["tool_choice"], &choice) == nil {
		switch kind, _ := text(choice["type"]); kind {
		case "auto":
			more["tool_choice"] = "auto"
		case "any", "tool":
			more["tool_choice"] = "required"
		}
	}
	if json.Unmarshal(in["thinking"], &thinking) == nil {
		if kind, _ := text(thinking["type"]); kind == "enabled" {
			more["thinking_budget_tokens"] = 10000
			if v, ok := thinking["budget_tokens"]; ok && !null(v) {
				more["thinking_budget_tokens"] = v
			}
		}
	}
	if v, ok := in["chat_template_kwargs"]; ok {
		more["chat_template_kwargs"] = v
	}
	return chatOf(out, more, unsure)
}

// systemText is a system prompt: a text, or parts of text. Of anything else the server says that it is empty.
func systemText(raw json.RawMessage, unsure *Types) string {
	t, _ := text(raw)
	if !isList(raw) {
		return unstamped(t)
	}
	parts, ok := list[fields](raw)
	if !ok {
		unsure.add("system")
	}
	var out strings.Builder
	for _, p := range parts {
		if kind, _ := text(p["type"]); kind != "text" {
			unsure.add(kind)
			continue
		}
		t, _ := text(p["text"])
		out.WriteString(unstamped(t))
	}
	return out.String()
}

// unstamped has the stamp of a text that begins with a billing header made the same in all requests. Servers do that, since nothing behind it
// could be reused otherwise.
func unstamped(t string) string {
	const head, name, stamp = "x-anthropic-billing-header:", "cch=", "fffff"
	if !strings.HasPrefix(t, head) {
		return t
	}
	at := strings.Index(t[len(head):], name)
	if at < 0 {
		return t
	}
	at += len(head) + len(name)
	if end := at + len(stamp); end < len(t) && t[end] == ';' {
		return t[:at] + stamp + t[end:]
	}
	return t
}

// blocks makes the messages of a message whose content are blocks: itself, and one for each result of a tool.
func blocks(role string, content json.RawMessage, unsure *Types) ([]any, error) {
	raws, ok := list[json.RawMessage](content)
	if !ok {
		return nil, notUnderstood("content")
	}
	var texts, calls, results []any
	thoughts := ""
	for _, raw := range raws {
		var b fields
		if json.Unmarshal(raw, &b) != nil || b == nil {
			return nil, notUnderstood("content")
		}
		switch kind, _ := text(b["type"]); kind {
		case "text":
			texts = append(texts, raw)
		case "thinking":
			t, _ := text(b["thinking"])
			thoughts += t
		case "redacted_thinking": // nobody can read it
		case "tool_use":
			input := b["input"]
			if len(input) == 0 || null(input) {
				input = json.RawMessage("{}")
			}
			arguments, err := dump(input)
			if err != nil {
				return nil, err
			}
			id, _ := text(b["id"])
			name, _ := text(b["name"])
			calls = append(calls, toolCall(id, name, arguments))
		case "tool_result":
			said, err := resultText(b["content"], unsure)
			if err != nil {
				return nil, err
			}
			id, _ := text(b["tool_use_id"])
			results = append(results, object{"role": "tool", "tool_call_id": id, "content": said})
		case "image":
			return nil, PassMedia
		default:
			unsure.add(kind)
		}
	}
	var out []any
	if len(texts) > 0 || len(calls) > 0 || thoughts != "" {
		m := object{"role": role, "content": ""}
		if len(texts) > 0 {
			m["content"] = texts
		}
		if len(calls) > 0 {
			m["tool_calls"] = calls
		}
		if thoughts != "" {
			m["reasoning_content"] = thoughts
		}
		out = append(out, m)
	}
	return append(out, results...), nil
}

// resultText is what a tool said: a text, or parts of text. Of anything else the server says that it is empty.
func resultText(raw json.RawMessage, unsure *Types) (string, error) {
	if !isList(raw) {
		t, _ := text(raw)
		return t, nil
	}
	parts, ok := list[fields](raw)
	if !ok {
		return "", notUnderstood("tool_result")
	}
	var out strings.Builder
	for _, p := range parts {
		switch kind, _ := text(p["type"]); kind {
		case "text":
			t, _ := text(p["text"])
			out.WriteString(t)
		case "image":
			return "", PassMedia
		default:
			unsure.add(kind)
		}
	}
	return out.String(), nil
}

// messagesTools makes functions of tools. The server does that with tools of other types, too, which are names without a schema.
func messagesTools(tools []fields, unsure *Types) []any {
	out := []any{}
	for _, t := range tools {
		if kind, ok := text(t["type"]); ok && kind != "custom" {
			unsure.add(kind)
		}
		name, _ := text(t["name"])
		description, _ := text(t["description"])
		schema, ok := t["input_schema"]
		if !ok {
			schema = json.RawMessage("{}")
		}
		out = append(out, object{"type": "function", "function": object{"name": name, "description": description, "parameters": schema}})
	}
	return out
}
