//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// The conversation of the needle, in the template of Gemma.
const (
	codeWord = "pelican"
	asked    = "What is the code word?"
	begun    = "The code word is" // the answer, up to the word
)

// said is a message as the template has it, up to where the answer begins.
func (r *rig) said(message string) []kv.Token {
	ids, err := r.model.Tokenize("<start_of_turn>user\n"+message+"<end_of_turn>\n<start_of_turn>model\n", true)
	if err != nil {
		panic(err) // texts of this program only
	}
	return ids
}

func (r *rig) answered(text string) []kv.Token {
	ids, err := r.model.Tokenize(text+"<end_of_turn>\n", true)
	if err != nil {
		panic(err)
	}
	return withoutBOS(ids)
}

// withoutBOS leaves out the token that begins a text, where a tokenizer puts one.
func withoutBOS(ids []kv.Token) []kv.Token {
	const bos = 2 // Gemma's
	if len(ids) > 0 && ids[0] == bos {
		return ids[1:]
	}
	return ids
}

var needleOptions = chat.Options{Reserve: 64}

// bury says the code word, talks about something else, and measures. It tells what it measured, and waits for the kill.
func (r *rig) bury(ctx context.Context, s *seat, tell func(map[string]float64) error) error {
	o := needleOptions
	o.System = []kv.Token{2}
	c, err := s.host.Open(ctx, "needle", o)
	if err != nil {
		return err
	}
	turns := [][2]string{{"The code word is " + codeWord + ". Remember it.", "The code word is " + codeWord + "."}}
	for i := range 6 {
		long := ""
		for k := range 4 {
			long += filler[(i+k)%len(filler)] + " "
		}
		turns = append(turns, [2]string{long + "Is that a good story?", "It is a calm story about a river and a street."})
	}
	for _, x := range turns {
		t, err := c.Begin(ctx, withoutBOS(r.said(x[0])), chat.BeginOptions{})
		if err != nil {
			return err
		}
		if err := errors.Join(t.Append(ctx, r.answered(x[1])), last(t.Logits(ctx)), t.Commit(ctx)); err != nil {
			return err
		}
	}
	p, err := r.ask(ctx, c)
	if err != nil {
		return err
	}
	return tell(p)
}

// views are what the question is asked in.
var views = []struct {
	name string
	see  chat.Policy
}{
	{"all", chat.All},
	{"fact hidden", only(func(i int) bool { return i > 0 })},
	{"talk hidden", only(func(i int) bool { return i == 0 })},
}

func only(yes func(i int) bool) chat.Policy {
	return func(turns []chat.TurnInfo, _ []float32) []bool {
		in := make([]bool, len(turns))
		for i := range in {
			in[i] = yes(i)
		}
		return in
	}
}

// ask measures the probability of the right answer in each view.
func (r *rig) ask(ctx context.Context, c *chat.Conversation) (map[string]float64, error) {
	probs := map[string]float64{}
	for _, v := range views {
		t, err := c.Begin(ctx, withoutBOS(r.said(asked)), chat.BeginOptions{Policy: v.see})
		if err != nil {
			return nil, err
		}
		if err := t.Append(ctx, withoutBOS(r.tokens(begun))); err != nil {
			return nil, err
		}
		word := withoutBOS(r.tokens(" " + codeWord))
		p := 1.0
		for _, token := range word {
			l, err := t.Logits(ctx)
			if err != nil {
				return nil, err
			}
			p *= probability(l, token)
			if err := t.Append(ctx, []kv.Token{token}); err != nil {
				return nil, err
			}
		}
		probs[v.name] = p
		if err := t.Abort(ctx); err != nil {
			return nil, err
		}
	}
	return probs, nil
}

func probability(scores []float32, token kv.Token) float64 {
	top := math.Inf(-1)
	for _, s := range scores {
		top = max(top, float64(s))
	}
	sum := 0.0
	for _, s := range scores {
		sum += math.Exp(float64(s) - top)
	}
	return math.Exp(float64(scores[token])-top) / sum
}

// needle kills the process that knows the code word, asks again from the store, and after the talk was forgotten.
func needle(ctx context.Context, s settings, out io.Writer) error {
	v, err := start(ctx, order{What: "needle", Model: s.model, Dir: s.newFolder("needle")})
	if err != nil {
		return err
	}
	defer v.kill()
	var before report
	if err := v.reports.Decode(&before); err != nil {
		return fmt.Errorf("the first process: %w", err)
	}
	v.kill()
	r, err := load(s.model, false, llama.ContextOptions{Tokens: 6144, Sequences: 32})
	if err != nil {
		return err
	}
	seat, err := r.sit(ctx, s.newFolder("needle"), nil)
	if err != nil {
		return err
	}
	defer func() { seat.close() }()
	c, err := seat.host.Open(ctx, "needle", needleOptions)
	if err != nil {
		return err
	}
	after, err := r.ask(ctx, c)
	if err != nil {
		return err
	}
	loaded := c.Stats()
	for _, t := range c.Turns()[1:] {
		if err := c.Forget(ctx, t.ID); err != nil {
			return err
		}
	}
	rewritten, err := r.ask(ctx, c)
	if err != nil {
		return err
	}
	for _, v := range views {
		fmt.Fprintf(out, "needle: %-12s before the kill %8.2g   after SIGKILL, from the store %8.2g   after a rewrite without the talk %8.2g\n",
			v.name, before.Probs[v.name], after[v.name], rewritten[v.name])
	}
	fmt.Fprintf(out, "needle: %d rows were loaded, %d tokens computed\n", loaded.Loaded, loaded.Prefilled)
	switch {
	case after["talk hidden"] < 0.6:
		return fmt.Errorf("with the talk hidden, from the store, the right answer has probability %.2g, at least 0.6", after["talk hidden"])
	case after["fact hidden"] > 0.01:
		return fmt.Errorf("with the fact hidden the right answer has probability %.2g", after["fact hidden"])
	case loaded.Loaded == 0:
		return errors.New("nothing came from the store")
	}
	return nil
}
