package request

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What a place in a rendered prompt may belong to, beside "message 3": the third of the request's own messages, or items of its input.
const (
	PartPrompt   = "prompt"        // of a request that is no chat
	PartSystem   = "system prompt" // messages for the system in front of all others
	PartTools    = "tools"         // tools, and what the template writes because there are some
	PartTemplate = "template"      // what the template writes by itself
)

// PartAt says which part of a request byte at of its rendered text belongs to; where nobody knows, it gives an empty one.
//
// Templates put tools before or behind the system prompt, and either into the first message. So the server renders the chat once more, with a
// mark in place of each text: what stands between the marks is the template's, and the texts lie where the marks are. What it does not write without
// the tools is theirs.
func (r *Request) PartAt(ctx context.Context, a Server, text string, at int) (string, error) {
	if r.Endpoint == Completion || r.Endpoint == TextCompletion {
		return PartPrompt, nil
	}
	m, err := r.marked()
	if err != nil {
		return "", err
	}
	pieces, err := m.render(ctx, a)
	if err != nil {
		return "", err
	}
	i, off, in := m.find(pieces, text, at)
	switch {
	case i < 0:
		return "", nil
	case in:
		return r.nameOf(m, m.texts[pieces[i].text].message), nil
	}
	// The place is in what stands behind mark i-1 and in front of mark i.
	if tools, err := m.ofTools(ctx, a, pieces, i, off); err != nil || tools {
		return PartTools, err
	}
	before, behind := -1, m.messages
	if i > 0 {
		before = m.texts[pieces[i-1].text].message
	}
	if i < len(pieces)-1 {
		behind = m.texts[pieces[i].text].message
	}
	switch {
	case off == 0 && before >= 0: // that text ends here, and went on in the other prompt
		return r.nameOf(m, before), nil
	case before >= 0 && m.calls[before]:
		return r.nameOf(m, before), nil
	case behind > before+1: // messages without a text: calls of tools
		return r.nameOf(m, before+1), nil
	}
	return PartTemplate, nil
}

// marked is a chat with a mark in place of each text.
type marked struct {
	body     map[string]json.RawMessage
	texts    []markedText
	messages int
	system   int          // how many messages for the system come first
	calls    map[int]bool // messages that call tools
	mark     string
}

type markedText struct {
	text    string
	message int
}

// piece is what the template writes in front of a mark, or behind the last one.
type piece struct {
	literal string
	text    int // which mark follows; -1: none
}

// marked puts marks in place of texts.
func (r *Request) marked() (*marked, error) {
	chat := r.asChat()
	if chat.err != nil {
		return nil, chat.err
	}
	var nonce [8]byte
	rand.Read(nonce[:])
	m := &marked{calls: map[int]bool{}, mark: fmt.Sprintf("M%xN", nonce)}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(chat.body, &m.body) != nil || json.Unmarshal(m.body["messages"], &messages) != nil {
		return nil, PassBody
	}
	m.messages = len(messages)
	leads := true
	for i, msg := range messages {
		var role string
		json.Unmarshal(msg["role"], &role)
		if leads = leads && (role == "system" || role == "developer"); leads {
			m.system++
		}
		m.calls[i] = !empty(msg["tool_calls"])
		for _, key := range []string{"reasoning_content", "content"} {
			if v, ok := msg[key]; ok {
				msg[key] = m.replaced(v, i)
			}
		}
	}
	var err error
	m.body["messages"], err = json.Marshal(messages)
	return m, err
}

// replaced is a content with marks: of a text, or of parts of text.
func (m *marked) replaced(v json.RawMessage, message int) json.RawMessage {
	var text string
	if isText(v) && json.Unmarshal(v, &text) == nil {
		return m.put(v, text, message)
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal(v, &parts) != nil {
		return v
	}
	for _, p := range parts {
		if isText(p["text"]) && json.Unmarshal(p["text"], &text) == nil {
			p["text"] = m.put(p["text"], text, message)
		}
	}
	if b, err := json.Marshal(parts); err == nil && parts != nil {
		return b
	}
	return v
}

// put is the mark of a text. One without letters stays: a template may ask whether there is one.
func (m *marked) put(v json.RawMessage, text string, message int) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return v
	}
	m.texts = append(m.texts, markedText{text, message})
	return json.RawMessage(fmt.Sprintf(`"%s%dE"`, m.mark, len(m.texts)-1))
}

// render has the server render the chat with its marks, or without some fields of it.
func (m *marked) render(ctx context.Context, a Server, without ...string) (out []piece, err error) {
	body := map[string]json.RawMessage{}
	for k, v := range m.body {
		body[k] = v
	}
	for _, key := range without {
		delete(body, key)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	text, err := a.ApplyTemplate(ctx, b)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, x := range regexp.MustCompile(m.mark+`(\d+)E`).FindAllStringSubmatchIndex(text, -1) {
		n, err := strconv.Atoi(text[x[2]:x[3]])
		if err != nil || n >= len(m.texts) {
			continue
		}
		out = append(out, piece{text[at:x[0]], n})
		at = x[1]
	}
	return append(out, piece{text[at:], -1}), nil
}

// find goes along a rendered text, piece by piece, to a byte of it: it lies in the text of which piece i has the mark, or off bytes behind the beginning of
// what the template writes in front of that. -1: the way was lost before.
func (m *marked) find(pieces []piece, text string, at int) (i, off int, in bool) {
	pos := 0
	for i, p := range pieces {
		begin := pos
		if !strings.HasPrefix(text[pos:], p.literal) { // the server's tokens may begin with one that no template writes
			n := strings.Index(text[pos:], p.literal)
			if n < 0 {
				return -1, 0, false
			}
			if begin = pos + n; at < begin {
				return i, 0, false
			}
		}
		if pos = begin + len(p.literal); at < pos || p.text < 0 {
			return i, at - begin, false
		}
		n := m.length(pieces, i, text[pos:])
		if n < 0 {
			return -1, 0, false
		}
		if pos += n; at < pos {
			return i, 0, true
		}
	}
	return -1, 0, false
}

// length is how long the text of piece i is at the beginning of rest. A template may have cut it, or written it in another way: then it goes to where the
// next one begins.
func (m *marked) length(pieces []piece, i int, rest string) int {
	own := m.texts[pieces[i].text].text
	for _, t := range []string{own, strings.TrimSpace(own), strings.TrimLeft(own, " \t\r\n")} {
		if strings.HasPrefix(rest, t) && strings.HasPrefix(rest[len(t):], pieces[i+1].literal) {
			return len(t)
		}
	}
	next := pieces[i+1]
	if next.text >= 0 {
		const enough = 64 // bytes of the next text
		follows := m.texts[next.text].text
		for _, t := range []string{follows, strings.TrimSpace(follows)} {
			if n := strings.Index(rest, next.literal+t[:min(len(t), enough)]); n >= 0 {
				return n
			}
		}
	}
	if next.literal == "" {
		return -1
	}
	if next.text < 0 {
		return strings.LastIndex(rest, next.literal)
	}
	return strings.Index(rest, next.literal)
}

// ofTools reports whether byte off of what stands in front of mark i is there because of the tools.
func (m *marked) ofTools(ctx context.Context, a Server, pieces []piece, i, off int) (bool, error) {
	if empty(m.body["tools"]) {
		return false, nil
	}
	plain, err := m.render(ctx, a, "tools", "tool_choice", "parallel_tool_calls")
	if err != nil || len(plain) != len(pieces) {
		return false, err
	}
	with, without := pieces[i].literal, plain[i].literal
	begin := 0
	for begin < min(len(with), len(without)) && with[begin] == without[begin] {
		begin++
	}
	end := 0
	for end < min(len(with), len(without))-begin && with[len(with)-1-end] == without[len(without)-1-end] {
		end++
	}
	return begin <= off && off < len(with)-end, nil
}

// nameOf names a message of the chat by its place in the request.
func (r *Request) nameOf(m *marked, message int) string {
	if message < m.system {
		return PartSystem
	}
	return "message " + strconv.Itoa(r.itemOf(message)+1)
}

// itemOf is which of the request's own messages, or items of its input, message i of the chat came from. One may have become several, and several one.
func (r *Request) itemOf(i int) int {
	key := map[Endpoint]string{Responses: "input", Messages: "messages"}[r.Endpoint]
	var items []json.RawMessage
	if key == "" || json.Unmarshal(r.Fields[key], &items) != nil {
		if r.Endpoint == Responses { // a text is the only one
			return 0
		}
		return i
	}
	// The first n items make more messages than i: the smallest such n.
	lo, hi := 0, len(items)
	for lo < hi {
		n := (lo + hi) / 2
		some := Request{Endpoint: r.Endpoint, Body: r.Body}
		some.Fields = map[string]json.RawMessage{}
		for k, v := range r.Fields {
			some.Fields[k] = v
		}
		some.Fields[key], _ = json.Marshal(items[:n])
		var chat struct {
			Messages []json.RawMessage `json:"messages"`
		}
		made := some.asChat()
		if made.err == nil && json.Unmarshal(made.body, &chat) == nil && len(chat.Messages) > i {
			hi = n
		} else {
			lo = n + 1
		}
	}
	return max(0, lo-1)
}
