//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stream writes a text that comes in pieces, of which one may end in the middle of a character: that is kept back until the rest is there.
type stream struct {
	w     io.Writer
	held  []byte
	begun bool // something was written
}

func (s *stream) add(piece string) {
	s.held = append(s.held, piece...)
	n := len(s.held)
	for i := n - 1; i >= max(0, n-utf8.UTFMax); i-- {
		if utf8.RuneStart(s.held[i]) {
			if !utf8.FullRune(s.held[i:]) {
				n = i
			}
			break
		}
	}
	s.write(n)
}

// end writes what was kept back.
func (s *stream) end() { s.write(len(s.held)) }

func (s *stream) write(n int) {
	text := printable(string(s.held[:n]))
	s.held = append(s.held[:0], s.held[n:]...)
	if !s.begun {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	if text != "" {
		s.begun = true
		io.WriteString(s.w, text)
	}
}

// printable is text without what a terminal would take for a command.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
