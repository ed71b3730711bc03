package request

import (
	"encoding/json"
	"strings"
)

// messagesAsChat makes the chat request that the server makes of a request to /v1/messages: system prompt, texts, thoughts, tools, their calls
// and results.
func messagesAsChat(fields map[string]json.RawMessage) ([]byte, error) {
	var out []any
	if v, ok := fields["system"]; ok && string(v) != "null" {
		system, err := systemText(v)
		if err != nil {
			return nil, err
		}
		out = append(out, object{"role": "system", "content": system})
	}
	items, err := list[json.RawMessage](fields["messages"])
	if err != nil {
		return nil, err
	}
	for _, raw := range items {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &m) != nil {
			return nil, PassEndpoint
		}
		if isText(m.Content) {
			out = append(out, raw)
			continue
		}
		more, err := blocks(m.Role, m.Content)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	more := object{}
	if v := fields["tools"]; !empty(v) {
		if more["tools"], err = messagesTools(v); err != nil {
			return nil, err
		}
	}
	if v := fields["tool_choice"]; !empty(v) {
		var choice struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(v, &choice) != nil {
			return nil, PassEndpoint
		}
		switch choice.Type {
		case "auto":
			more["tool_choice"] = "auto"
		case "any", "tool":
			more["tool_choice"] = "required"
		}
	}
	if v := fields["thinking"]; !empty(v) {
		thinking := struct {
			Type   string `json:"type"`
			Budget int    `json:"budget_tokens"`
		}{Budget: 10000}
		if json.Unmarshal(v, &thinking) != nil {
			return nil, PassEndpoint
		}
		if thinking.Type == "enabled" {
			more["thinking_budget_tokens"] = thinking.Budget
		}
	}
	if v, ok := fields["chat_template_kwargs"]; ok {
		more["chat_template_kwargs"] = v
	}
	return chatBody(out, more)
}

// systemText is a system prompt: a text, or parts of text.
func systemText(raw json.RawMessage) (string, error) {
	if isText(raw) {
		t, err := text(raw)
		return unstamped(t), err
	}
	parts, err := list[block](raw)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", PassEndpoint
		}
		out.WriteString(unstamped(p.Text))
	}
	return out.String(), nil
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

// block is a part of a message of /v1/messages.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// blocks makes the messages of a message whose content are blocks: itself, and one for each result of a tool.
func blocks(role string, content json.RawMessage) ([]any, error) {
	raws, err := list[json.RawMessage](content)
	if err != nil {
		return nil, err
	}
	var texts, calls, results []any
	thoughts := ""
	for _, raw := range raws {
		var b block
		if json.Unmarshal(raw, &b) != nil {
			return nil, PassEndpoint
		}
		switch b.Type {
		case "text":
			texts = append(texts, raw)
		case "thinking":
			thoughts += b.Thinking
		case "redacted_thinking": // nobody can read it
		case "tool_use":
			if b.Input == nil {
				b.Input = json.RawMessage("{}")
			}
			arguments, err := dump(b.Input)
			if err != nil {
				return nil, err
			}
			calls = append(calls, toolCall(b.ID, b.Name, arguments))
		case "tool_result":
			said, err := resultText(b.Content)
			if err != nil {
				return nil, err
			}
			results = append(results, object{"role": "tool", "tool_call_id": b.ToolUseID, "content": said})
		case "image", "document":
			return nil, PassMedia
		default:
			return nil, PassEndpoint
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

// resultText is what a tool said: a text, or parts of text.
func resultText(raw json.RawMessage) (string, error) {
	switch {
	case empty(raw):
		return "", nil
	case isText(raw):
		return text(raw)
	}
	parts, err := list[block](raw)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", PassMedia
		}
		out.WriteString(p.Text)
	}
	return out.String(), nil
}

func messagesTools(raw json.RawMessage) ([]any, error) {
	tools, err := list[struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"input_schema"`
	}](raw)
	if err != nil {
		return nil, err
	}
	var out []any
	for _, t := range tools {
		if t.Schema == nil {
			t.Schema = json.RawMessage("{}")
		}
		out = append(out, object{"type": "function", "function": object{"name": t.Name, "description": t.Description, "parameters": t.Schema}})
	}
	return out, nil
}
