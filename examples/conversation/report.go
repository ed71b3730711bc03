package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dormousekv/dormouse/chat"
)

// cell is how many tokens a character of a picture stands for.
const cell = 6

// picture draws the log as a turn saw it.
func picture(pieces []chat.Piece, own int) string {
	var b strings.Builder
	put := func(c string, tokens int) { b.WriteString(strings.Repeat(c, (tokens+cell-1)/cell)) }
	for _, p := range pieces {
		n := p.End - p.Start
		switch {
		case p.Kind == "system":
			put("S", n)
		case p.Kind == "fact" && p.Gone:
			put("x", n)
		case p.Kind == "fact":
			put("F", n)
		case p.Gone:
			put(" ", n)
		case p.Visible == n:
			put("#", n)
		default:
			put("·", n)
		}
	}
	put(">", own)
	return b.String()
}

const legend = `what each turn saw of the log, a character for %d tokens:
  S system prompt  F fact  x superseded or removed fact  # visible turn  · hidden turn  (blank) evicted turn  > the turn itself
`

// row is a line of the table.
type row struct {
	turn    int
	what    string
	text    string
	e       event
	equal   bool
	picture string
}

func table(out io.Writer, rows []row) {
	fmt.Fprintf(out, "%4s  %-34s %5s %6s %7s %8s %6s  %s\n", "turn", "message", "view", "reused", "loaded", "computed", "ms", "as the list says")
	for _, r := range rows {
		if r.turn == 0 {
			fmt.Fprintf(out, "      %s\n", r.what)
			continue
		}
		equal := "yes"
		if !r.equal {
			equal = "NO"
		}
		s := r.e.Stats
		fmt.Fprintf(out, "%4d  %-34s %5d %6d %7d %8d %6.1f  %s\n", r.turn, short(r.text, 34), s.View, s.Reused, s.Loaded, s.Prefilled, millis(s.Begin), equal)
	}
	fmt.Fprintln(out)
	fmt.Fprintf(out, legend, cell)
	for _, r := range rows {
		if r.turn == 0 {
			fmt.Fprintf(out, "      %s\n", r.what)
		} else {
			fmt.Fprintf(out, "%4d  %s\n", r.turn, r.picture)
		}
	}
}

func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
