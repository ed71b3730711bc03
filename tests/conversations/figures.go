//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// figures measures what a person waits for, at 1,500 tokens of turns, or -n.
func figures(ctx context.Context, s settings, out io.Writer) error {
	if s.n == 0 {
		s.n = 1500
	}
	r, err := load(s.model, false, llama.ContextOptions{Tokens: 3*s.n + 4096, Sequences: 32})
	if err != nil {
		return err
	}
	seat, err := r.sit(ctx, s.newFolder("figures"), nil)
	if err != nil {
		return err
	}
	defer func() { seat.close() }()
	o := chat.Options{System: r.tokens(systemText), Ring: s.n + 512}
	var cs []*chat.Conversation
	cold := time.Duration(0)
	for _, id := range []string{"one", "two"} {
		c, err := seat.host.Open(ctx, id, o)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := r.fill(ctx, c, id, s.n); err != nil {
			return err
		}
		if cold == 0 {
			cold = time.Since(began)
		}
		cs = append(cs, c)
	}
	var shows []time.Duration
	for range 10 {
		for _, c := range cs {
			st, err := r.probe(ctx, c)
			if err != nil {
				return err
			}
			shows = append(shows, st.Show)
		}
	}
	fmt.Fprintf(out, "figures: switching between two conversations of %d rows in the cache, making the view (the mask): %v (seed 003: 12 ms; mask 0.3 ms)\n", rowsOf(cs[0]), median(shows))

	var loads []time.Duration
	for range 5 {
		if err := seat.host.Trim(ctx, 3*s.n+4096); err != nil {
			return err
		}
		before := cs[0].Stats()
		if _, err := r.probe(ctx, cs[0]); err != nil {
			return err
		}
		after := cs[0].Stats()
		loads = append(loads, after.Lookup+after.Load-before.Lookup-before.Load)
	}
	fmt.Fprintf(out, "figures: parked and loaded again: %v (seed 002: 200 to 400 ms)\n", median(loads))

	if err := seat.close(); err != nil {
		return err
	}
	if seat, err = r.sit(ctx, s.newFolder("figures"), nil); err != nil {
		return err
	}
	began := time.Now()
	c, err := seat.host.Open(ctx, "one", o)
	if err != nil {
		return err
	}
	if _, err := r.probe(ctx, c); err != nil {
		return err
	}
	warm := time.Since(began)
	fmt.Fprintf(out, "figures: the first token after a restart, %d rows: %v; computing them took %v\n", rowsOf(c), warm.Round(time.Millisecond), cold.Round(time.Millisecond))

	if err := r.branching(ctx, c, out); err != nil {
		return err
	}
	if err := r.drafting(ctx, c, out); err != nil {
		return err
	}
	if err := c.SetSystem(ctx, append(r.tokens(systemText), r.tokens(" Be kind.")...)); err != nil {
		return err
	}
	st := c.Stats()
	fmt.Fprintf(out, "figures: a rewrite computed %d tokens in %v, between turns; the swap took %v (seed: 80 ms)\n", st.Rewritten, st.Rewrite.Round(time.Millisecond), st.Swap.Round(100*time.Microsecond))
	return nil
}

// fill talks until the turns have so many tokens.
func (r *rig) fill(ctx context.Context, c *chat.Conversation, salt string, tokens int) error {
	for i := 0; ; i++ {
		n := 0
		for _, t := range c.Turns() {
			n += t.Tokens
		}
		if n >= tokens {
			return nil
		}
		text := r.tokens(fmt.Sprintf("%s %d: %s %s", salt, i, filler[i%len(filler)], filler[(i+1)%len(filler)]))
		t, err := c.Begin(ctx, text, chat.BeginOptions{Reserve: 16})
		if err != nil {
			return err
		}
		if err := errors.Join(last(t.Logits(ctx)), t.Commit(ctx)); err != nil {
			return err
		}
	}
}

// probe begins a turn of one token, and takes it back.
func (r *rig) probe(ctx context.Context, c *chat.Conversation) (chat.TurnStats, error) {
	t, err := c.Begin(ctx, r.tokens(" yes")[:1], chat.BeginOptions{Reserve: 1})
	if err != nil {
		return chat.TurnStats{}, err
	}
	return t.Stats(), t.Abort(ctx)
}

func rowsOf(c *chat.Conversation) (n int) {
	for _, p := range c.View() {
		if !p.Gone {
			n += p.End - p.Start
		}
	}
	return n
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2].Round(time.Microsecond)
}

// branching decodes eight branches in one batch, and one by one.
func (r *rig) branching(ctx context.Context, c *chat.Conversation, out io.Writer) error {
	const branches, words = 8, 12
	took := map[int]time.Duration{}
	for _, at := range []int{branches, 1} {
		t, err := c.Begin(ctx, r.tokens("Tell me more about the boats."), chat.BeginOptions{Reserve: 64})
		if err != nil {
			return err
		}
		bs, err := t.Fork(ctx, branches)
		if err != nil {
			return err
		}
		next := make([][]kv.Token, branches)
		for i := range next {
			next[i] = []kv.Token{kv.Token(1000 + i)}
		}
		began := time.Now()
		for range words {
			for i := 0; i < branches; i += at {
				if err := t.Advance(ctx, bs[i:i+at], next[i:i+at]); err != nil {
					return err
				}
			}
			for i, b := range bs {
				next[i] = []kv.Token{chat.Greedy(b.Logits())}
			}
		}
		took[at] = time.Since(began)
		if err := t.Abort(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "figures: eight branches of %d tokens: %v in one batch, %v one by one\n", words, took[branches].Round(time.Millisecond), took[1].Round(time.Millisecond))
	return nil
}

// drafting answers with drafts that are looked up in what was said, and without.
func (r *rig) drafting(ctx context.Context, c *chat.Conversation, out io.Writer) error {
	message := r.tokens("Repeat this word by word: " + filler[0] + " " + filler[1] + " And once more: " + filler[0] + " " + filler[1] + " And once more: " + filler[0])
	const words = 48
	answers := map[bool][]kv.Token{}
	took := map[bool]time.Duration{}
	for _, draft := range []bool{false, true} {
		t, err := c.Begin(ctx, message, chat.BeginOptions{Reserve: words + 16})
		if err != nil {
			return err
		}
		began := time.Now()
		for len(t.Answer()) < words {
			if !draft {
				for _, err := range t.Generate(ctx, chat.Greedy, nil) {
					if err != nil {
						return err
					}
					break
				}
				continue
			}
			if _, err := t.Verify(ctx, chat.Lookup(t.Tokens(), 3, 8), chat.Greedy); err != nil {
				return err
			}
		}
		took[draft], answers[draft] = time.Since(began), t.Answer()[:words]
		if err := t.Abort(ctx); err != nil {
			return err
		}
	}
	st := c.Stats()
	rate := func(d time.Duration) float64 { return words / d.Seconds() }
	fmt.Fprintf(out, "figures: %d tokens: %.1f a second, with drafts looked up in what was said %.1f (%d of %d draft tokens taken); the same words: %v\n",
		words, rate(took[false]), rate(took[true]), st.Accepted, st.Drafted, slices.Equal(answers[false], answers[true]))
	return nil
}
