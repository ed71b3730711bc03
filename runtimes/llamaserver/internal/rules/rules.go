package rules

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// Action is what becomes of a text that a rule finds.
type Action string

const (
	Drop Action = "drop" // it goes: only for what no model needs to read
	Move Action = "move" // it becomes a line behind the first user message
	Lead Action = "lead" // it becomes the end of the system prompt: for what says the same in every conversation, and stands behind a question
)

// Part is a part of a request.
type Part string

const (
	System Part = "system"        // the system prompt: of a chat all messages before the first one of another role
	Tools  Part = "tools"         // the descriptions of tools, and of their parameters
	First  Part = "first message" // the first message of the user
	Second Part = "second system" // messages of the system behind that one, and before the first answer
	Last   Part = "last message"  // the last one
	Rest   Part = "messages"      // all messages behind the system prompt
)

// known are all parts.
var known = []Part{System, Tools, First, Second, Last, Rest}

// from are the parts from which a text can be taken elsewhere. What came from a later message would change the first one, or the system prompt, in the middle of
// a conversation.
var from = map[Action][]Part{Move: {System, Tools, First, Second}, Lead: {Second}}

// Rule finds texts in parts of a request, and drops or moves them.
type Rule struct {
	Name    string // as X-Dormouse has it
	Set     string // where it comes from
	Parts   []Part
	Pattern *regexp.Regexp
	Action  Action
	Leave   string // what stays in the place of a text
	Line    string // what a moved text becomes, with $1 for a group of the pattern; empty: the text itself
}

// Rules are applied in their order.
type Rules []Rule

// Apply gives the body of a request as the rules have it, and which of them found something. With none, the body is the one that was given.
func (rs Rules) Apply(e request.Endpoint, body []byte) (out []byte, applied []int) {
	if len(rs) == 0 {
		return body, nil
	}
	d := read(e, body)
	if d == nil {
		return body, nil
	}
	to := map[Action]*text{Move: d.target, Lead: d.lead}
	lines := map[Action][]string{}
	for i, r := range rs {
		found := false
		for _, t := range d.texts {
			if !slices.ContainsFunc(r.Parts, t.in) || r.Action != Drop && to[r.Action] == nil {
				continue
			}
			moved, ok := t.cut(r)
			found = found || ok
			for _, line := range moved {
				if !slices.Contains(lines[r.Action], line) {
					lines[r.Action] = append(lines[r.Action], line)
				}
			}
		}
		if found {
			applied = append(applied, i)
		}
	}
	if applied == nil {
		return body, nil
	}
	for action, lines := range lines {
		to[action].add("\n" + strings.Join(lines, "\n"))
	}
	return d.body(), applied
}

// cut takes what a rule finds out of a text. It gives the lines that are to be read elsewhere.
func (t *text) cut(r Rule) (lines []string, found bool) {
	var at []int
	for _, m := range r.Pattern.FindAllStringSubmatchIndex(t.plain, -1) {
		if m[0] == m[1] {
			continue
		}
		at = append(at, m[0], m[1])
		if r.Action != Drop {
			line := t.plain[m[0]:m[1]]
			if r.Line != "" {
				line = string(r.Pattern.ExpandString(nil, r.Line, t.plain, m))
			}
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if at == nil {
		return nil, false
	}
	raw := places(t.raw, at)
	leave := escaped(r.Leave)
	var out bytes.Buffer
	var plain strings.Builder
	from, plainFrom := 0, 0
	for i := 0; i < len(at); i += 2 {
		out.Write(t.raw[from:raw[i]])
		out.Write(leave)
		plain.WriteString(t.plain[plainFrom:at[i]])
		plain.WriteString(r.Leave)
		from, plainFrom = raw[i+1], at[i+1]
	}
	out.Write(t.raw[from:])
	plain.WriteString(t.plain[plainFrom:])
	t.raw, t.plain, t.changed = out.Bytes(), plain.String(), true
	return lines, true
}

// add puts something behind a text.
func (t *text) add(s string) {
	t.raw = append(slices.Clip(t.raw), escaped(s)...)
	t.plain += s
	t.changed = true
}

// escaped is a text as it stands between the quotes of JSON.
func escaped(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(s) // a text can be written
	return bytes.TrimSuffix(bytes.TrimSpace(b.Bytes())[1:], []byte(`"`))
}
