package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Limits of a file of rules.
const (
	maxFile  = 1 << 20 // bytes
	maxRules = 100
)

// name is what a header can say.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,39}$`)

// Parse reads a file of rules:
//
//	{"rules": [{"name": "cwd", "parts": ["system"], "pattern": "(?m)^Working directory: .*$", "action": "move"}]}
//
// Errors name the line. A field that is not known is one, since it may be one that was to forbid something.
func Parse(file []byte) (Rules, error) {
	if len(file) > maxFile {
		return nil, fmt.Errorf("it has %d bytes: expected at most %d", len(file), maxFile)
	}
	p := &parser{file: file, dec: json.NewDecoder(bytes.NewReader(file))}
	var out Rules
	err := p.object("the file", func(key string) error {
		if key != "rules" {
			return p.errorf("unknown field %q: expected rules", key)
		}
		return p.array("rules", func() error {
			r, err := p.rule()
			if err != nil {
				return err
			}
			if len(out) == maxRules {
				return p.errorf("more than %d rules", maxRules)
			}
			if slices.ContainsFunc(out, func(o Rule) bool { return o.Name == r.Name }) {
				return p.errorf("two rules are called %q", r.Name)
			}
			out = append(out, r)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, p.errorf("something follows behind the rules")
	}
	if len(out) == 0 {
		return nil, errors.New("it has no rules")
	}
	return out, nil
}

// parser reads JSON piece by piece, to know the line of what is wrong.
type parser struct {
	file []byte
	dec  *json.Decoder
}

func (p *parser) errorf(format string, args ...any) error {
	at := min(int(p.dec.InputOffset()), len(p.file))
	return fmt.Errorf("line %d: "+format, append([]any{1 + bytes.Count(p.file[:at], []byte("\n"))}, args...)...)
}

func (p *parser) token() (json.Token, error) {
	t, err := p.dec.Token()
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, p.errorf("it ends too soon")
	case errors.As(err, &syntax):
		return nil, p.errorf("no JSON: %v", err)
	case err != nil:
		return nil, p.errorf("%v", err)
	}
	return t, nil
}

// object reads the fields of an object, each once.
func (p *parser) object(what string, field func(key string) error) error {
	t, err := p.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return p.errorf("%s: expected an object", what)
	}
	seen := map[string]bool{}
	for {
		t, err := p.token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return nil // its end
		}
		if seen[key] {
			return p.errorf("%s is there twice", key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
}

func (p *parser) array(what string, value func() error) error {
	t, err := p.token()
	if err != nil {
		return err
	}
	if t != json.Delim('[') {
		return p.errorf("%s: expected a list", what)
	}
	for p.dec.More() {
		if err := value(); err != nil {
			return err
		}
	}
	_, err = p.token()
	return err
}

func (p *parser) text(what string) (string, error) {
	t, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", p.errorf("%s: expected a text", what)
	}
	return s, nil
}

func (p *parser) rule() (r Rule, err error) {
	pattern := ""
	err = p.object("a rule", func(key string) error {
		var s string
		switch key {
		case "parts":
			return p.array(key, func() error {
				s, err := p.text(key)
				if err == nil && !slices.Contains(known, Part(s)) {
					err = p.errorf("parts: %q: expected one of %q", s, known)
				}
				r.Parts = append(r.Parts, Part(s))
				return err
			})
		case "name", "pattern", "action", "leave", "line":
			var err error
			if s, err = p.text(key); err != nil {
				return err
			}
		default:
			return p.errorf("unknown field %q: expected name, parts, pattern, action, leave or line", key)
		}
		var err error
		switch key {
		case "name":
			if r.Name = s; !name.MatchString(s) {
				return p.errorf("name: %q: expected up to 40 of a-z, 0-9, and - _ . between them", s)
			}
		case "pattern":
			pattern = s
			if r.Pattern, err = regexp.Compile(s); err != nil {
				return p.errorf("pattern: %v", err)
			}
			if r.Pattern.MatchString("") {
				return p.errorf("pattern: %q is found in an empty text, too", s)
			}
		case "action":
			if r.Action = Action(s); r.Action != Drop && r.Action != Move && r.Action != Lead {
				return p.errorf("action: %q: expected %q, %q or %q", s, Drop, Move, Lead)
			}
		case "leave":
			r.Leave = s
		case "line":
			r.Line = s
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	var lacking []string
	for _, f := range []struct {
		name string
		is   bool
	}{{"name", r.Name != ""}, {"parts", len(r.Parts) > 0}, {"pattern", pattern != ""}, {"action", r.Action != ""}} {
		if !f.is {
			lacking = append(lacking, f.name)
		}
	}
	if lacking != nil {
		return r, p.errorf("the rule that ends here lacks %s", strings.Join(lacking, ", "))
	}
	if r.Action == Drop && r.Line != "" {
		return r, p.errorf("rule %s: line is for what is moved", r.Name)
	}
	for _, part := range r.Parts {
		switch {
		case r.Action == Drop || slices.Contains(from[r.Action], part):
		case r.Action == Move:
			return r, p.errorf("rule %s: nothing can be moved from %q: it would change the first message in the middle of a conversation", r.Name, part)
		default:
			return r, p.errorf("rule %s: nothing can lead from %q, expected %q: else it would change the system prompt in the middle of a conversation", r.Name, part, Second)
		}
	}
	return r, nil
}
