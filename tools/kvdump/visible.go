package main

import (
	"bytes"
	"io"
	"unicode"
)

// visible writes text without control characters. Names of models, which come out of model files, and of refs must not reach a
// terminal as commands to it.
type visible struct{ io.Writer }

// checked remembers the first error of a writer that nobody asks after each line.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

func (v visible) Write(b []byte) (int, error) {
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
