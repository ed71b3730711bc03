package rules

import (
	"bytes"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

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
