//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/chat"
)

// pictureWidth is how many characters the longest strip of the picture has.
const pictureWidth = 32

// cost is what a turn cost.
type cost struct {
	chat.TurnStats
	message int          // tokens
	pieces  []chat.Piece // of the log as it was then: a rewrite may follow
}

// why draws what the last turn attended to, a strip for each piece of the log, and says what it cost. A script is not told times, which
// are never the same.
func (t *talk) why() {
	pieces := t.c.View()
	s, known := t.last[t.c.ID()]
	if known {
		pieces = s.pieces
	}
	longest, turn := 1, chat.TurnID(0)
	for _, p := range pieces {
		longest = max(longest, p.End-p.Start)
		if p.Kind == "turn" {
			turn = max(turn, p.Turn)
		}
	}
	if turn == 0 {
		t.say("There is no turn yet.")
		return
	}
	words := map[chat.TurnID]string{}
	for _, i := range t.c.Turns() {
		words[i.ID] = string(i.Meta)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, p := range pieces {
		n := p.End - p.Start
		if n == 0 {
			continue
		}
		strip := func(tokens int, with string) string { // at least one character if there is a token
			return strings.Repeat(with, (tokens*pictureWidth+longest-1)/longest)
		}
		name, note, rest := p.Kind, "", "·"
		switch {
		case p.Kind == "fact":
			name += " " + p.Name
		case p.Kind == "turn":
			name, note = fmt.Sprintf("turn %d", p.Turn), beginning(words[p.Turn])
		}
		switch {
		case p.Kind == "turn" && p.Turn == turn:
			p.Visible = n
			note = "the last one: " + note
		case p.Gone:
			rest, note = "×", strings.TrimSpace("gone  "+note)
		case p.Visible < n:
			note = strings.TrimSpace("hidden  " + note)
		}
		fmt.Fprintf(w, "  %s\t%d\t%s%s\t%s\n", name, n, strip(p.Visible, "█"), strip(n-p.Visible, rest), note)
	}
	t.say("What turn %d attended to, in tokens (█ seen, · hidden, × out of the cache):", turn)
	w.Flush()
	if !known {
		t.say("What it cost is not known any more: that is only while the conversation stays open, and no turn is taken back.")
		return
	}
	t.explain(s)
}

// explain says where what a turn attended to came from, and why.
func (t *talk) explain(s cost) {
	took := func(d time.Duration) string {
		if !t.in.terminal {
			return ""
		}
		return fmt.Sprintf(" in %v", d.Round(100*time.Microsecond))
	}
	t.say("It saw %d tokens before it; %d of them were in the cache when it began.", s.View, s.Reused)
	if s.Loaded > 0 {
		t.say("%d came from the store%s: the conversation had been closed, or had left the cache to others.", s.Loaded, took(s.Load))
	}
	if n := s.Prefilled - s.message; n > 0 {
		t.say("%d were computed before the message: what begins the conversation, the end of the last answer, new facts, and what is not stored.", n)
	}
	t.say("The message took %d tokens%s.", s.message, took(s.Prefill))
	if s.Rewritten > 0 {
		t.say("%d were computed before, as the log was rewritten: without what is gone.", s.Rewritten)
	}
	t.say("%d tokens were computed for the answer%s.", s.Decoded, took(s.Decode))
	if s.StoreError != nil {
		t.say("Its rows are not all stored, and will be computed again: %v.", s.StoreError)
	}
}

// beginning is how a message begins.
func beginning(text string) string {
	const most = 40
	text = printable(text)
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	return text
}
