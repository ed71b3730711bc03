//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
)

// begin begins a turn with a message of the user, whose words stay with it, in the place of another turn if there is to be one.
func (t *talk) begin(ctx context.Context, text string, instead chat.TurnID) (*chat.Turn, error) {
	message, err := t.tokens.around(t.template.user, text, t.template.toAnswer, false)
	if err != nil {
		return nil, err
	}
	turn, err := t.c.Begin(ctx, message, chat.BeginOptions{Meta: []byte(text), Instead: instead})
	var long *chat.TooLongError
	switch {
	case errors.As(err, &long):
		return nil, fmt.Errorf("the message is too long: with the room for its answer (-answer %d) it needs %d tokens, and turns may take %d (-ring)", t.o.answer, long.Need, long.Have)
	case errors.Is(err, context.Canceled):
		return nil, errors.New("interrupted before the answer began: nothing of it is kept")
	}
	return turn, err
}

// ask asks the model and shows its answer as it comes. Ctrl-C ends the answer, and what there is of it is kept. A turn in whose place it asks stays until then.
func (t *talk) ask(ctx context.Context, text string, temperature float64, instead chat.TurnID) error {
	return t.in.interruptible(ctx, func(ctx context.Context) error {
		turn, err := t.begin(ctx, text, instead)
		if err != nil {
			return err
		}
		return t.finish(ctx, turn, temperature, &stream{w: t.out})
	})
}

// finish lets the model answer, from where the turn is, and commits the turn.
func (t *talk) finish(ctx context.Context, turn *chat.Turn, temperature float64, shown *stream) error {
	sample := t.sampler(temperature, uint64(turn.ID())<<8)
	note, n, ended := "", len(turn.Answer()), false
	for token, err := range turn.Generate(ctx, sample, t.l.model.Ends) {
		switch {
		case errors.Is(err, context.Canceled):
			note = "(Interrupted: this much is kept.)"
		case err != nil:
			note = "(" + err.Error() + ": this much is kept.)"
		}
		if ended = err != nil || t.l.model.Ends(token); ended {
			break
		}
		shown.add(t.l.model.Piece(token))
		if n++; n >= t.o.answer {
			break
		}
	}
	shown.end()
	if shown.begun {
		t.say("")
	}
	if !ended {
		note = fmt.Sprintf("(The answer was cut at %d tokens: -answer gives it more.)", n)
	}
	ctx = context.WithoutCancel(ctx)
	if n == 0 && note != "" {
		return errors.Join(errors.New("interrupted before the answer began: nothing of it is kept"), turn.Abort(ctx))
	}
	if note != "" {
		t.say("%s", note)
	}
	return t.commit(ctx, turn)
}

// sampler draws tokens. Any that ends an answer is that of the template.
func (t *talk) sampler(temperature float64, turn uint64) chat.Sampler {
	draw := sampler(temperature, t.o.seed, turn)
	if len(t.end) == 0 || !t.l.model.Ends(t.end[0]) {
		return draw
	}
	return func(scores []float32) kv.Token {
		if token := draw(scores); !t.l.model.Ends(token) {
			return token
		}
		return t.end[0]
	}
}

// commit puts the end of an answer behind it, as far as the model did not, and makes the turn durable.
func (t *talk) commit(ctx context.Context, turn *chat.Turn) error {
	rest := t.end
	if a := turn.Answer(); len(a) > 0 && len(rest) > 0 && a[len(a)-1] == rest[0] && t.l.model.Ends(rest[0]) {
		rest = rest[1:]
	}
	err := turn.Append(ctx, rest)
	pieces := append(t.c.View(), chat.Piece{Kind: "turn", Turn: turn.ID(), End: len(turn.Tokens())})
	if err == nil {
		err = turn.Commit(ctx)
	}
	if err != nil {
		return errors.Join(err, turn.Abort(ctx))
	}
	t.last[t.c.ID()] = cost{turn.Stats(), len(turn.Tokens()) - len(turn.Answer()), pieces}
	if !t.in.terminal { // a script finds everything done
		return t.host.Tidy(ctx)
	}
	return nil
}

// answerText is an answer without its end.
func (t *talk) answerText(answer []kv.Token) string {
	return strings.TrimSpace(t.text(without(answer, t.end)))
}

// newest is the last turn.
func (t *talk) newest() (chat.TurnInfo, error) {
	turns := t.c.Turns()
	if len(turns) == 0 {
		return chat.TurnInfo{}, errors.New("there is no turn yet")
	}
	return turns[len(turns)-1], nil
}

// again asks anew, in the place of the last turn.
func (t *talk) again(ctx context.Context, text string, temperature float64) error {
	last, err := t.newest()
	if err != nil {
		return err
	}
	if text == "" {
		text = string(last.Meta)
	}
	return t.ask(ctx, text, temperature, last.ID)
}

// branch answers the last message n times at once, and lets the user pick an answer. The one that was there stays until then.
func (t *talk) branch(ctx context.Context, n int) error {
	last, err := t.newest()
	if err != nil {
		return err
	}
	var turn *chat.Turn
	var branches []*chat.Branch
	var ended []bool
	err = t.in.interruptible(ctx, func(ctx context.Context) (err error) {
		if turn, err = t.begin(ctx, string(last.Meta), last.ID); err != nil {
			return err
		}
		if branches, err = turn.Fork(ctx, n); err != nil {
			return errors.Join(err, turn.Abort(ctx))
		}
		if ended, err = t.grow(ctx, turn, branches); errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	if turn == nil || branches == nil {
		return err
	}
	if err != nil {
		t.say("(%v: the answers are as far as they got.)", err)
	}
	for i, b := range branches {
		t.say("%d) %s", i+1, strings.TrimSpace(t.text(b.Tokens())))
	}
	choice := t.choose(n)
	if choice == 0 {
		return turn.Abort(ctx)
	}
	if err := branches[choice-1].Promote(ctx); err != nil {
		return errors.Join(err, turn.Abort(ctx))
	}
	if ended[choice-1] || len(turn.Answer()) >= t.o.answer {
		return t.commit(ctx, turn)
	}
	return t.in.interruptible(ctx, func(ctx context.Context) error {
		return t.finish(ctx, turn, t.o.temperature, &stream{w: t.out})
	})
}

// grow lets branches answer, all of them in one batch a token, and says which of them came to an end. Where nothing is drawn, they begin with
// the likeliest tokens, a branch with each.
func (t *talk) grow(ctx context.Context, turn *chat.Turn, branches []*chat.Branch) (ended []bool, err error) {
	ended = make([]bool, len(branches))
	samplers := make([]chat.Sampler, len(branches))
	for i := range branches {
		samplers[i] = t.sampler(t.o.temperature, uint64(turn.ID())<<8|uint64(i+1))
	}
	first := likeliest(branches[0].Logits(), len(branches))
	most := min(chat.MaxBranchTokens, t.o.answer)
	for n := range most {
		var live []*chat.Branch
		var next [][]kv.Token
		for i, b := range branches {
			if ended[i] {
				continue
			}
			token := samplers[i](b.Logits())
			if n == 0 && t.o.temperature == 0 {
				token = first[i]
			}
			if ended[i] = t.l.model.Ends(token); !ended[i] {
				live, next = append(live, b), append(next, []kv.Token{token})
			}
		}
		if len(live) == 0 {
			break
		}
		if err := turn.Advance(ctx, live, next); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// choose asks for one of n answers; 0 is none of them.
func (t *talk) choose(n int) int {
	for {
		line, ok := t.in.next(fmt.Sprintf("Which one, 1 to %d? 0 keeps the answer that was there: ", n))
		choice, err := strconv.Atoi(line)
		if !ok {
			return 0
		}
		if err == nil && choice >= 0 && choice <= n {
			return choice
		}
	}
}
