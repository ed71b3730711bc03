package conformance

import (
	"context"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// Rows that one runtime stored, another loads, by ranges, and goes on as the first would with those ranges.
func storeAndLoad(c *check) {
	tokens, more := c.tokens(100), c.tokens(5)
	p := kv.Tokens(slices.Concat(tokens, more)...)
	c.fill(0, 0, tokens)
	for _, r := range []kv.Range{span(0, 37), span(37, 40), span(41, 41), span(60, 100)} { // 40 to 60 lie in the sequence
		c.must(c.r.Store(background, p, 0, r))
	}
	c.must(c.r.Store(background, p, 0, span(0, 100))) // once more

	view := []kv.Range{span(0, 20), span(55, 70), span(90, 100)}
	c.copy(0, 1, view...)
	want, all := c.decode(1, 100, more, 5), c.decode(0, 100, more, 5)
	fresh := c.other()
	n, err := fresh.r.Load(background, p, 2, view)
	if err != nil || n != 100 {
		c.Fatalf("load: %d, %v; 100 tokens are stored", n, err)
	}
	got := fresh.decode(2, 100, more, 5)
	if n, err = fresh.r.Load(background, p, 0, []kv.Range{span(0, 100)}); err != nil || n != 100 {
		c.Fatalf("load: %d, %v; 100 tokens are stored", n, err)
	}
	gotAll := fresh.decode(0, 100, more, 1)
	for i := range more {
		c.same("ranges from the store", want[i], got[i])
		c.same("everything from the store", all[i], gotAll[i])
		c.differ("some ranges and everything", want[i], all[i])
	}
	// What was loaded can be stored on.
	q := kv.Tokens(slices.Concat(tokens, more, c.tokens(10))...)
	fresh.fill(0, 105, q.Tokens[105:])
	c.must(fresh.r.Store(background, q, 0, span(100, 115)))
	if n, err = c.r.Load(background, q, 3, []kv.Range{span(0, 115)}); err != nil || n != 115 {
		c.Fatalf("load: %d, %v; 115 tokens are stored", n, err)
	}
	token := c.tokens(1)
	c.same("stored by the runtime that had loaded", fresh.decode(0, 115, token, 1)[0], c.decode(3, 115, token, 1)[0])
}

// A load gives what there is and says how much that is.
func loadBeyond(c *check) {
	tokens := c.tokens(100)
	c.fill(0, 0, tokens[:81])
	c.must(c.r.Store(background, kv.Tokens(tokens...), 0, span(0, 80))) // what follows is not looked at
	want := c.decode(0, 81, tokens[81:83], 2)

	fresh := c.other()
	for _, ranges := range [][]kv.Range{nil, {span(80, 90)}, {span(95, 400)}, {span(0, 10), span(40, 100), span(200, 300)}} {
		n, err := fresh.r.Load(background, kv.Tokens(tokens...), 0, ranges)
		if err != nil || n != 80 {
			c.Fatalf("load of %v: %d, %v; 80 tokens are stored", ranges, n, err)
		}
	}
	c.must(c.r.Remove(0, span(81, 83)))
	c.copy(0, 1, span(0, 10), span(40, 80))
	view := c.decode(1, 80, tokens[80:83], 3)
	for i, got := range fresh.decode(0, 80, tokens[80:83], 3) { // an error, if the sequence had another last row
		c.same("after the stored part of a range", view[i], got)
		if i > 0 {
			c.differ("a part and everything", want[i-1], got)
		}
	}

	parted := slices.Concat(tokens[:50], c.tokens(50))
	for parted[50] == tokens[50] {
		parted[50] = c.tokens(1)[0]
	}
	n, err := fresh.r.Load(background, kv.Tokens(parted...), 1, []kv.Range{span(0, 100)})
	if err != nil || n > 50 {
		c.Fatalf("load: %d, %v; the prompts part after 50 tokens", n, err)
	}
	fresh.fill(1, n, parted[n:])
	token := c.tokens(1)
	c.fill(2, 0, parted)
	c.same("a prompt that parts", c.decode(2, 100, token, 1)[0], fresh.decode(1, 100, token, 1)[0])

	if n, err := fresh.r.Load(background, kv.Tokens(c.tokens(60)...), 2, []kv.Range{span(0, 60)}); err != nil || n != 0 {
		c.Fatalf("load of what nobody stored: %d, %v", n, err)
	}
	fresh.fill(2, 0, tokens[:1]) // nothing was loaded
}

// A load keeps what the sequence has outside of the ranges.
func loadGap(c *check) {
	tokens, more := c.tokens(90), c.tokens(4)
	p := kv.Tokens(tokens...)
	c.fill(0, 0, tokens)
	c.must(c.r.Store(background, p, 0, span(0, 90)))
	c.copy(0, 1, span(0, 90))
	c.must(c.r.Remove(1, span(20, 70)))
	c.copy(1, 2, whole)
	if n, err := c.r.Load(background, p, 1, []kv.Range{span(20, 30), span(31, 70)}); err != nil || n != 90 {
		c.Fatalf("load into a gap: %d, %v", n, err)
	}
	c.copy(0, 1, span(30, 31))
	all, filled, gap := c.decode(0, 90, more, 4), c.decode(1, 90, more, 4), c.decode(2, 90, more, 4)
	for i := range more {
		c.same("after the gap was filled", all[i], filled[i])
		c.differ("with the gap and without", gap[i], all[i])
	}
}

// Rows that saw something else have another key, where the recipe span says so; those before it are shared.
func spans(c *check) {
	for name, at := range map[string]int{"in a block": 53, "at a border": 64, "where the scope begins": 48, "at 0": 0} {
		tokens, token := c.tokens(100), c.tokens(1)
		plain := kv.Tokens(tokens...)
		if name == "where the scope begins" {
			plain.Scope, plain.ScopeStart = "somebody", at
		}
		recipe := plain
		recipe.Spans = []kv.Span{{Start: at, Len: 1, Hash: kv.HashOf("seen: " + name)}}
		for seq := range 3 {
			c.clear(seq)
		}
		c.fill(0, 0, tokens)
		c.must(c.r.Store(background, plain, 0, span(0, 100)))
		c.copy(0, 1, span(0, at))
		if at > 0 {
			c.must(c.r.Remove(1, span(10, at-5)))
		}
		c.fill(1, at, tokens[at:])
		c.must(c.r.Store(background, recipe, 1, span(at, 100)))

		seen := []kv.Range{span(0, min(10, at)), span(max(at-5, 0), 100)}
		fresh := c.other()
		for seq, p := range []kv.Prompt{plain, recipe} {
			if n, err := fresh.r.Load(background, p, seq, seen); err != nil || n != 100 {
				c.Fatalf("%s: load of prompt %d: %d, %v; 100 tokens are stored", name, seq, n, err)
			}
		}
		c.copy(0, 2, seen...)
		got := fresh.decode(1, 100, token, 1)[0]
		c.same(name+": rows that saw everything", c.decode(2, 100, token, 1)[0], fresh.decode(0, 100, token, 1)[0])
		c.same(name+": rows that saw less", c.decode(1, 100, token, 1)[0], got)
		if at > 0 {
			c.must(c.r.Remove(2, span(100, 101)))
			c.differ(name+": rows that saw more and less", c.decode(2, 100, token, 1)[0], got)
		}
		other := recipe
		other.Spans = []kv.Span{{Start: at, Len: 1, Hash: kv.HashOf("seen by nobody")}}
		if n, err := fresh.r.Load(background, other, 2, seen); err != nil || n > at {
			c.Fatalf("%s: load of another recipe: %d, %v; its rows begin at %d", name, n, err, at)
		}
	}
}

// What a sequence has not, and what nothing leads to, is not stored.
func storeNothing(c *check) {
	tokens := c.tokens(80)
	p := kv.Tokens(tokens...)
	c.fill(0, 0, tokens[:60])
	c.must(c.r.Remove(0, span(20, 30)))
	for name, r := range map[string]kv.Range{
		"rows behind the last one": span(50, 61), "a hole": span(0, 40), "rows behind the prompt": span(70, 90),
		"rows that follow a hole of the store and of the sequence": span(40, 60),
	} {
		if err := c.r.Store(background, p, 0, r); err == nil {
			c.Errorf("%s: no error", name)
		}
	}
	if err := c.r.Store(background, p, c.r.Limits().Sequences, span(0, 1)); err == nil {
		c.Error("a sequence that there is not: no error")
	}
	c.must(c.r.Store(background, p, 0, span(0, 0)))
	if n, err := c.r.Load(background, p, 1, nil); err != nil || n > 20 {
		c.Errorf("load: %d, %v; at most 20 rows could be stored", n, err)
	}
}

// A call whose context is done either does what it is asked or nothing.
func cancelled(c *check) {
	tokens := c.tokens(60)
	p := kv.Tokens(tokens...)
	c.fill(0, 0, tokens[:50])
	c.must(c.r.Store(background, p, 0, span(0, 50)))
	ctx, cancel := context.WithCancel(background)
	cancel()
	at := 50
	switch err := c.r.Decode(ctx, stepsOf(0, 50, tokens[50:min(60, 50+c.r.Limits().Batch)])); {
	case err == nil:
		at = min(60, 50+c.r.Limits().Batch)
	case !errors.Is(err, context.Canceled):
		c.Errorf("decode: %v, want context.Canceled", err)
	}
	c.fill(0, at, tokens[at:])
	if n, err := c.r.Load(ctx, p, 1, []kv.Range{span(0, 50)}); err != nil {
		if !errors.Is(err, context.Canceled) {
			c.Errorf("load: %v, want context.Canceled", err)
		}
	} else if c.must(c.r.Remove(1, whole)); n != 50 {
		c.Errorf("load: %d, and no error; 50 tokens are stored", n)
	}
	if err := c.r.Store(ctx, p, 0, span(50, 60)); err != nil && !errors.Is(err, context.Canceled) {
		c.Errorf("store: %v, want context.Canceled", err)
	}
	c.fill(1, 0, tokens)
	c.must(c.r.Store(background, p, 0, span(50, 60)))
	token := c.tokens(1)
	c.same("after calls that were cancelled", c.decode(1, 60, token, 1)[0], c.decode(0, 60, token, 1)[0])
}

// A prompt whose scope begins behind its end is refused, also where the rows that are asked for end before that: they would be everybody's.
func scopeThatCannotBegin(c *check) {
	tokens := c.tokens(60)
	c.fill(0, 0, tokens)
	for _, p := range []kv.Prompt{{Tokens: tokens, Scope: "somebody", ScopeStart: 61}, {Tokens: tokens, ScopeStart: 30}} {
		for _, r := range []kv.Range{span(0, 60), span(0, 40)} {
			if err := c.r.Store(background, p, 0, r); !errors.Is(err, kv.ErrPrompt) {
				c.Fatalf("store of %v, scope %q at %d of 60 tokens: %v", r, p.Scope, p.ScopeStart, err)
			}
		}
		if n, err := c.r.Load(background, p, 1, nil); !errors.Is(err, kv.ErrPrompt) {
			c.Fatalf("load, scope %q at %d of 60 tokens: %d, %v", p.Scope, p.ScopeStart, n, err)
		}
	}
}
