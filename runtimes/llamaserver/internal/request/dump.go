package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// dump is a value as the server writes it: without spaces, characters as themselves, numbers with a point as the shortest that reads the same.
func dump(raw json.RawMessage) (string, error) {
	var out []byte
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	type level struct {
		array bool
		n     int // values, and of an object its names
	}
	var open []level
	for {
		t, err := in.Token()
		if err != nil {
			return "", notUnderstood("json")
		}
		closes := t == json.Delim(']') || t == json.Delim('}')
		if last := len(open) - 1; last >= 0 && !closes {
			switch l := &open[last]; {
			case !l.array && l.n%2 == 1:
				out = append(out, ':')
			case l.n > 0:
				out = append(out, ',')
			}
			open[last].n++
		}
		switch t := t.(type) {
		case json.Delim:
			out = append(out, byte(t))
			if closes {
				open = open[:len(open)-1]
			} else {
				open = append(open, level{array: t == '['})
			}
		case string:
			out = quoted(out, t)
		case json.Number:
			out = append(out, number(t.String())...)
		case bool:
			out = strconv.AppendBool(out, t)
		case nil:
			out = append(out, "null"...)
		}
		if len(open) == 0 {
			return string(out), nil
		}
	}
}

// quoted appends a text in quotes. Only what must be escaped is.
func quoted(out []byte, text string) []byte {
	out = append(out, '"')
	for i := range len(text) {
		switch c := text[i]; c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\t':
			out = append(out, `\t`...)
		case '\n':
			out = append(out, `\n`...)
		case '\f':
			out = append(out, `\f`...)
		case '\r':
			out = append(out, `\r`...)
		default:
			if c < 0x20 {
				out = fmt.Appendf(out, `\u%04x`, c)
			} else {
				out = append(out, c)
			}
		}
	}
	return append(out, '"')
}

// number is a number as the server writes it: one that is whole in its text as it is, another one as the shortest that reads the same, with a point.
func number(text string) string {
	if text == "-0" {
		return "0"
	}
	if !strings.ContainsAny(text, ".eE") {
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return text
		}
		if _, err := strconv.ParseUint(text, 10, 64); err == nil {
			return text
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	if f == 0 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	digits = strings.Replace(digits, ".", "", 1)
	e, _ := strconv.Atoi(exponent)
	switch point := e + 1; { // digits before the point
	case len(digits) <= point && point <= 15:
		return sign + digits + strings.Repeat("0", point-len(digits)) + ".0"
	case 0 < point && point <= 15:
		return sign + digits[:point] + "." + digits[point:]
	case -4 < point && point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + digits
	}
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	return fmt.Sprintf("%s%se%+03d", sign, digits, e)
}
