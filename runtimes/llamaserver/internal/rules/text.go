package rules

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a string of a body: as it is written there, without its quotes, and as it is read.
type text struct {
	parts      []Part
	start, end int // between the quotes, in the body
	raw        []byte
	plain      string
	changed    bool
}

func (t *text) in(p Part) bool {
	for _, q := range t.parts {
		if q == p {
			return true
		}
	}
	return false
}

// plainOf reads what is between the quotes of JSON. It gives false where that is no text that every reader would read alike: half of a pair of
// surrogates, or bytes that are no UTF-8.
func plainOf(raw []byte) (string, bool) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		r, n := next(raw[i:])
		if n == 0 {
			return "", false
		}
		out = utf8.AppendRune(out, r)
		i += n
	}
	return string(out), true
}

// next is the first character of what is between the quotes of JSON, and how many bytes it is written in; none: it is not one.
func next(raw []byte) (r rune, n int) {
	if raw[0] != '\\' {
		if r, n = utf8.DecodeRune(raw); r == utf8.RuneError && n == 1 {
			return 0, 0
		}
		return r, n
	}
	if len(raw) < 2 {
		return 0, 0
	}
	switch raw[1] {
	case '"', '\\', '/':
		return rune(raw[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := unit(raw)
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if low, ok := unit(raw[6:]); ok {
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				return r, 12
			}
		}
	}
	return 0, 0
}

// unit is a \u escape.
func unit(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(n), err == nil
}

// places are where in raw the given places of the plain text are, which grow, and at which characters begin or the text ends.
func places(raw []byte, at []int) []int {
	out := make([]int, 0, len(at))
	i, plain := 0, 0
	for _, want := range at {
		for plain < want {
			r, n := next(raw[i:])
			i, plain = i+n, plain+utf8.RuneLen(r)
		}
		out = append(out, i)
	}
	return out
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
