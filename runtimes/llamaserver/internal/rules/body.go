package rules

import (
	"bytes"
	"encoding/json"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// document is a body with the texts in it that rules look at.
type document struct {
	raw    []byte
	texts  []*text // in the order in which they stand there
	target *text   // the end of the first user message; nil: there is none with a text
	lead   *text   // the end of the system prompt; nil: likewise
}

// body is the document with the texts that were changed.
func (d *document) body() []byte {
	var out bytes.Buffer
	from := 0
	for _, t := range d.texts {
		if t.changed {
			out.Write(d.raw[from:t.start])
			out.Write(t.raw)
			from = t.end
		}
	}
	out.Write(d.raw[from:])
	return out.Bytes()
}

// node is a value of JSON: where it stands, and what is in it.
type node struct {
	kind       byte // its first character
	start, end int
	names      []string // of an object
	values     []*node  // of an object or array
}

// get is a field of an object; nil: there is none, or two have that name, and readers may differ in which one counts.
func (n *node) get(name string) (v *node) {
	if n == nil || n.kind != '{' {
		return nil
	}
	for i, s := range n.names {
		if s == name {
			if v != nil {
				return nil
			}
			v = n.values[i]
		}
	}
	return v
}

// list are the values of an array.
func (n *node) list() []*node {
	if n == nil || n.kind != '[' {
		return nil
	}
	return n.values
}

// read finds the texts of a body; nil: it is no JSON object, or not one of an endpoint with messages.
func read(e request.Endpoint, body []byte) *document {
	messages, system := "messages", ""
	switch e {
	case request.Chat:
	case request.Messages:
		system = "system"
	case request.Responses:
		messages, system = "input", "instructions"
	default:
		return nil
	}
	from := 0
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		from = 3
	}
	if !json.Valid(body[from:]) {
		return nil
	}
	s := scanner{body, from}
	root := s.value()
	if root.kind != '{' {
		return nil
	}
	d := &document{raw: body}
	order := map[int]*text{} // by where they begin
	add := func(n *node, parts ...Part) *text {
		if n == nil || n.kind != '"' {
			return nil
		}
		if t := order[n.start]; t != nil {
			t.parts = append(t.parts, parts...)
			return t
		}
		t := &text{parts: parts, start: n.start + 1, end: n.end - 1}
		t.raw = body[t.start:t.end]
		var ok bool
		if t.plain, ok = plainOf(t.raw); !ok {
			return nil
		}
		order[n.start] = t
		return t
	}
	// content adds a text, or those in a list of parts. It gives the last one.
	content := func(n *node, parts ...Part) (last *text) {
		if n != nil && n.kind == '"' {
			return add(n, parts...)
		}
		for _, p := range n.list() {
			switch s.text(p.get("type")) {
			case "text", "input_text", "output_text":
				if t := add(p.get("text"), parts...); t != nil {
					last = t
				}
			}
		}
		return last
	}
	if system != "" {
		d.lead = content(root.get(system), System)
	}
	s.described(root.get("tools"), func(n *node) { add(n, Tools) })
	in := root.get(messages)
	if in != nil && in.kind == '"' { // the input of /v1/responses may be a text
		d.target = add(in, Rest, First, Last)
	}
	head, answered := true, false
	var last *node
	for _, m := range in.list() {
		role := s.text(m.get("role"))
		ofSystem := role == "system" || role == "developer"
		if head = head && e != request.Messages && ofSystem; head {
			if t := content(m.get("content"), System); t != nil {
				d.lead = t
			}
			continue
		}
		content(m.get("content"), Rest)
		if answered = answered || !ofSystem && role != "user"; ofSystem && !answered {
			content(m.get("content"), Second)
		}
		if role == "user" {
			if last = m; d.target == nil {
				d.target = content(m.get("content"), First)
			}
		}
	}
	if last != nil {
		content(last.get("content"), Last)
	}
	for at := range body {
		if t := order[at]; t != nil {
			d.texts = append(d.texts, t)
		}
	}
	return d
}

// described visits the descriptions in a value, at any depth.
func (s *scanner) described(n *node, visit func(*node)) {
	if n == nil {
		return
	}
	for i, v := range n.values {
		if n.kind == '{' && n.names[i] == "description" && v.kind == '"' {
			visit(v)
		}
		s.described(v, visit)
	}
}

// scanner reads JSON that is known to be valid.
type scanner struct {
	body []byte
	at   int
}

func (s *scanner) text(n *node) string {
	if n == nil || n.kind != '"' {
		return ""
	}
	t, _ := plainOf(s.body[n.start+1 : n.end-1])
	return t
}

func (s *scanner) space() {
	for s.at < len(s.body) && bytes.IndexByte([]byte(" \t\r\n,:"), s.body[s.at]) >= 0 {
		s.at++
	}
}

// value reads the value at which the scanner is.
func (s *scanner) value() *node {
	s.space()
	n := &node{kind: s.body[s.at], start: s.at}
	switch n.kind {
	case '"':
		for s.at++; s.body[s.at] != '"'; s.at++ {
			if s.body[s.at] == '\\' {
				s.at++
			}
		}
		s.at++
	case '{', '[':
		for s.at++; ; {
			if s.space(); s.body[s.at] == '}' || s.body[s.at] == ']' {
				s.at++
				break
			}
			if n.kind == '{' {
				n.names = append(n.names, s.text(s.value()))
			}
			n.values = append(n.values, s.value())
		}
	default:
		for s.at < len(s.body) && bytes.IndexByte([]byte(" \t\r\n,:]}"), s.body[s.at]) < 0 {
			s.at++
		}
	}
	n.end = s.at
	return n
}
