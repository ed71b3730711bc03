package visible

import (
	"bytes"
	"io"
	"unicode"
)

// Writer writes text without control characters. Names of models, which come out of model files, and of refs must not reach a
// terminal as commands to it.
type Writer struct{ io.Writer }

func (v Writer) Write(b []byte) (int, error) {
	clean := bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, b)
	if _, err := v.Writer.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}
