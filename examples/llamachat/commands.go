//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
)

const help = `What you write is a message, unless it begins with a slash (// begins a message with one).
  /fact NAME TEXT    a fact that every answer from now on knows; a newer one of the name takes its place
  /fact NAME         takes the fact away
  /facts             lists them
  /edit TEXT         takes your last message back, with its answer, and asks TEXT
  /regenerate        takes the last answer back and makes another one
  /branch N          makes N answers to your last message at once, and you pick one
  /forget N          erases turn N, in every file (/why has the numbers)
  /threads           lists the conversations
  /threads NAME      goes on with another one, or begins it
  /why               what the last answer attended to, and what it cost
  /title TEXT        gives the conversation a title
  /export FILE       writes the conversation to a file: as text, or as JSON if the name ends in .json
  /quit              leaves, as Ctrl-C and the end of the input do: all is kept
Ctrl-C while an answer is made ends it, and what there is of it is kept.`

var errQuit = errors.New("the user leaves")

// loop does what the user says, until that is to leave.
func (t *talk) loop(ctx context.Context) error {
	for {
		line, ok := t.in.next("> ")
		if !ok {
			return nil
		}
		err := t.do(ctx, line)
		switch {
		case errors.Is(err, errQuit):
			return nil
		case err != nil:
			t.failed++
			t.say("! %v", err)
		}
	}
}

// do does what a line says.
func (t *talk) do(ctx context.Context, line string) error {
	if message, doubled := strings.CutPrefix(line, "//"); doubled {
		return t.ask(ctx, "/"+message, t.o.temperature, 0)
	}
	if line == "" || line[0] != '/' {
		if line == "" {
			return nil
		}
		return t.ask(ctx, line, t.o.temperature, 0)
	}
	name, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	number := func(least, most int, of string) (n int, err error) {
		if n, err = strconv.Atoi(rest); err != nil || n < least || n > most {
			return 0, fmt.Errorf("%s %s: %s", name, rest, of)
		}
		return n, nil
	}
	switch name {
	case "/help":
		t.say("%s", help)
		return nil
	case "/quit":
		return errQuit
	case "/fact":
		return t.fact(ctx, rest)
	case "/facts":
		for _, f := range t.facts() {
			t.say("%s: %s", f.Name, f.Text)
		}
		return nil
	case "/edit":
		if rest == "" {
			return errors.New("/edit TEXT: the message is missing")
		}
		return t.again(ctx, rest, t.o.temperature)
	case "/regenerate":
		temperature := t.o.temperature
		if temperature == 0 {
			temperature = 0.8
			t.say("(At temperature %v: the likeliest answer would be the same again.)", temperature)
		}
		return t.again(ctx, "", temperature)
	case "/branch":
		n, err := number(1, maxBranches, fmt.Sprintf("a number from 1 to %d is missing", maxBranches))
		if err != nil {
			return err
		}
		return t.branch(ctx, n)
	case "/forget":
		n, err := number(1, 1<<31-1, "the number of a turn is missing; /why has them")
		if err != nil {
			return err
		}
		err = t.c.Forget(ctx, chat.TurnID(n))
		delete(t.last, t.c.ID()) // the picture has its words
		switch {
		case errors.Is(err, chat.ErrNoTurn):
			return fmt.Errorf("there is no turn %d; /why has the numbers", n)
		case err == nil:
			t.say("Turn %d is erased.", n)
		}
		return err
	case "/threads":
		if rest == "" {
			return t.threads(ctx)
		}
		return t.turnTo(ctx, rest)
	case "/why":
		t.why()
		return nil
	case "/title":
		return t.c.SetMeta(ctx, []byte(rest))
	case "/export":
		if rest == "" {
			return errors.New("/export FILE: the name of the file is missing")
		}
		return t.export(rest)
	}
	return fmt.Errorf("there is no %s: /help lists the commands, and // begins a message with a slash", name)
}

// fact sets a fact, or takes one away.
func (t *talk) fact(ctx context.Context, rest string) error {
	name, text, _ := strings.Cut(rest, " ")
	text = strings.TrimSpace(text)
	if name == "" {
		return errors.New("/fact NAME TEXT: the name is missing")
	}
	if text == "" {
		for _, f := range t.c.Facts() {
			if f.Name == name {
				return t.c.SetFact(ctx, name, nil)
			}
		}
		return fmt.Errorf("there is no fact %s to take away; /fact %s TEXT sets it", name, name)
	}
	tokens, err := t.tokens.around(t.template.fact, name+": "+text, t.template.factEnd, false)
	if err != nil {
		return err
	}
	err = t.c.SetFact(ctx, name, tokens)
	if errors.Is(err, chat.ErrFactsFull) {
		return fmt.Errorf("%w: take one away first (/facts lists them, /fact NAME takes it away)", err)
	}
	return err
}

type factText struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// facts are the facts and their texts, in the order in which they were set.
func (t *talk) facts() (fs []factText) {
	for _, f := range t.c.Facts() {
		fs = append(fs, factText{f.Name, strings.TrimSpace(strings.TrimPrefix(t.between(t.template.fact, f.Tokens, t.template.factEnd), f.Name+":"))})
	}
	return fs
}

// between is the text of tokens without what the template has put around it.
func (t *talk) between(before string, tokens []int32, after string) string {
	shown := func(s string) string {
		tokens, err := t.tokens.parse(s, false)
		if err != nil {
			return s
		}
		return strings.TrimSpace(t.text(tokens))
	}
	text := strings.TrimPrefix(strings.TrimSpace(t.text(tokens)), shown(before))
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), shown(after)))
}

// threads lists the conversations of the store, the one on the screen with a star.
func (t *talk) threads(ctx context.Context) error {
	var list []string
	here := ""
	for f, err := range t.store.Sessions(ctx) {
		if err != nil {
			return err
		}
		var s chat.Summary
		frames, err := db.Collect(t.store.ReadSession(ctx, f.Scope))
		if err == nil {
			s, err = chat.Inspect(frames)
		}
		if err != nil { // the others are listed all the same
			list = append(list, fmt.Sprintf("! %v", err))
			continue
		}
		list = append(list, fmt.Sprintf("%s%s: %s, %s", printable(s.ID), t.titled(s.Meta), count(s.Turns, "turn"), count(len(s.Facts), "fact")))
		if s.ID == t.c.ID() {
			here = list[len(list)-1]
		}
	}
	slices.Sort(list)
	for _, line := range list {
		if line == here {
			t.say("* %s", line)
		} else {
			t.say("  %s", line)
		}
	}
	return nil
}
