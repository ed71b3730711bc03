//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// message is a part of a chat: role system, user or assistant.
type message struct{ role, text string }

// template is a chat template taken apart: what stands around each part of a chat. A chat that is put together of it, part after part, is
// what the template makes of the whole.
type template struct {
	begin               string // before all
	system, systemEnd   string // around the system prompt
	fact, factEnd       string // around a fact, which may stand between any two turns
	user, toAnswer, end string // before a user's message, between it and the answer, after the answer
}

var errApart = errors.New("cannot be taken apart into messages")

// takeApart finds the parts by what apply, which is the template, makes of short chats. A template without system messages, or
// with none behind the first message, has them as messages of the user, which are not answered.
func takeApart(apply func(answer bool, chat ...message) (string, error)) (t template, err error) {
	const one, two, three, four, note = "dormouse-one", "dormouse-two", "dormouse-three", "dormouse-four", "dormouse-note"
	ask, answer, askMore := message{"user", one}, message{"assistant", two}, message{"user", three}
	var failed error
	around := func(toAnswer bool, chat ...message) (between []string) { // what stands before, between and after the messages
		text, err := apply(toAnswer, chat...)
		for _, m := range chat {
			before, after, found := strings.Cut(text, m.text)
			if !found {
				err = errors.Join(err, fmt.Errorf("%w: %s is not where it should be", errApart, m.role))
			}
			between, text = append(between, before), after
		}
		if err != nil {
			failed = err
			return make([]string, len(chat)+1)
		}
		return append(between, text)
	}
	whole := around(false, ask, answer, askMore, message{"assistant", four})
	t.end = around(false, ask, answer)[2]
	t.toAnswer = around(true, ask)[1]
	userEnd := around(false, ask)[1]
	if failed != nil {
		return t, failed
	}
	var ok [2]bool
	t.user, ok[0] = strings.CutPrefix(whole[2], t.end)
	t.begin, ok[1] = strings.CutSuffix(whole[0], t.user)
	same := func(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }
	if !ok[0] || !ok[1] || !same(whole[1], t.toAnswer) || !same(whole[3], t.toAnswer) || !same(whole[4], t.end) {
		return t, fmt.Errorf("%w: %q", errApart, whole)
	}
	t.system, t.systemEnd = t.user, userEnd
	system := message{"system", note}
	if x := around(false, system, ask); failed == nil {
		before, ok := strings.CutPrefix(x[0], t.begin)
		after, too := strings.CutSuffix(x[1], t.user)
		if ok && too {
			t.system, t.systemEnd = before, after
		}
	}
	failed = nil
	t.fact, t.factEnd = t.user, userEnd
	if x := around(false, ask, answer, system, askMore); failed == nil {
		before, ok := strings.CutPrefix(x[2], t.end)
		after, too := strings.CutSuffix(x[3], t.user)
		if ok && too {
			t.fact, t.factEnd = before, after
		}
	}
	return t, nil
}

// tokenizer turns text into tokens: with control tokens parsed, and, where whole is set, the ones that the model wants before a text; or
// with nothing in it parsed.
type tokenizer struct {
	parse func(text string, whole bool) ([]int32, error)
	plain func(text string) ([]int32, error)
}

// around gives the tokens of a text between two parts of a template. A control token that is spelled out in the text is text.
func (k tokenizer) around(before, text, after string, whole bool) ([]int32, error) {
	all, err := k.parse(before+text+after, whole)
	parsed, err2 := k.parse(text, false)
	plain, err3 := k.plain(text)
	if err = errors.Join(err, err2, err3); err != nil || slices.Equal(parsed, plain) {
		return once(all), err
	}
	head, err := k.parse(before, whole)
	tail, err2 := k.parse(after, false)
	return slices.Concat(once(head), plain, tail), errors.Join(err, err2)
}

// once takes away the second of two equal first tokens: a template and the tokenizer may each have begun the text.
func once(tokens []int32) []int32 {
	if len(tokens) > 1 && tokens[0] == tokens[1] {
		return tokens[1:]
	}
	return tokens
}
