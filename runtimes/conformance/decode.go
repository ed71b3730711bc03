package conformance

import (
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

func limits(c *check) {
	l := c.r.Limits()
	if l.Sequences < 4 || l.Cells < 256 || l.Batch < 1 {
		c.Errorf("%d sequences, %d cells, batches of %d: these tests need 4 sequences and 256 cells", l.Sequences, l.Cells, l.Batch)
	}
	if l.Missing != "" {
		c.Errorf("the runtime says of itself that it cannot do this: %s", l.Missing)
	}
	c.fill(0, 0, c.tokens(5))
	if now := c.r.Limits(); now != l {
		c.Errorf("limits were %+v and are %+v", l, now)
	}
}

// However tokens are cut into calls, and whichever scores are asked for, the scores are the same.
func oneCallOrMany(c *check) {
	tokens := c.tokens(48)
	want := c.decode(0, 0, tokens, 48)
	for seq, most := range []int{48, 1, 7} {
		if seq == 0 {
			continue
		}
		for i, got := range c.decode(seq, 0, tokens, most) {
			c.same("decoded in smaller pieces", want[i], got)
		}
	}
	steps := stepsOf(3, 0, tokens[:min(len(tokens), c.r.Limits().Batch)])
	for i := range steps {
		steps[i].Logits = i%5 == 3
	}
	c.must(c.r.Decode(background, steps))
	for i, s := range steps {
		if s.Logits {
			c.same("fewer scores asked for", want[i], c.logits(i))
		}
	}
	c.differ("the same token after another", want[20], c.decode(0, 48, tokens[20:21], 1)[0])
	c.must(c.r.Decode(background, nil))
}

// Steps of several sequences, mixed in one batch, are as if each were alone.
func oneBatch(c *check) {
	prompts := [][]kv.Token{c.tokens(20), c.tokens(9), c.tokens(14)}
	var want [][][]float32
	for seq, p := range prompts {
		want = append(want, c.decode(seq, 0, p, len(p)))
		c.clear(seq)
	}
	at := make([]int, len(prompts))
	for left := 20 + 9 + 14; left > 0; {
		var steps []kv.Step
		for len(steps) < min(left, 11, c.r.Limits().Batch) {
			seq := c.rng.IntN(len(prompts))
			if at[seq] < len(prompts[seq]) {
				steps = append(steps, kv.Step{Token: prompts[seq][at[seq]], Pos: at[seq], Seq: seq, Logits: true})
				at[seq]++
			}
		}
		c.must(c.r.Decode(background, steps))
		for i, s := range steps {
			c.same("among steps of other sequences", want[s.Seq][s.Pos], c.logits(i))
		}
		left -= len(steps)
	}
}

// A step that does not come right after the last row is an error, and so is a sequence that there is not; nothing is changed.
func stepsInOrder(c *check) {
	tokens := c.tokens(21)
	want := c.decode(0, 0, tokens, 21)
	c.clear(0)
	c.fill(0, 0, tokens[:20])
	for name, steps := range map[string][]kv.Step{
		"a position too far":           stepsOf(0, 21, tokens[20:]),
		"a position that there is":     stepsOf(0, 19, tokens[20:]),
		"positions out of order":       {{Token: 1, Pos: 21}, {Token: 1, Pos: 20}},
		"a good step, and a wrong one": {{Token: 1, Pos: 20}, {Token: 1, Pos: 5, Seq: 0}},
		"a negative sequence":          {{Token: 1, Pos: 20, Seq: -1}},
		"a sequence too many":          {{Token: 1, Pos: 0, Seq: c.r.Limits().Sequences}},
	} {
		if err := c.r.Decode(background, steps); err == nil {
			c.Fatalf("%s: no error", name)
		}
	}
	c.same("after steps that were refused", want[20], c.decode(0, 20, tokens[20:], 1)[0])
}

// Copied rows are the same rows; what is then done to one sequence, the other does not see.
func copies(c *check) {
	tokens, left, right := c.tokens(40), c.tokens(10), c.tokens(10)
	c.fill(0, 0, tokens)
	c.copy(0, 1, span(0, 40))
	gotLeft := c.decode(0, 40, left, 10)
	gotRight := c.decode(1, 40, right, 3)
	c.copy(0, 2, span(0, 40)) // of the same rows once more, after both went on
	gotAgain := c.decode(2, 40, right, 10)
	c.clear(0)
	c.copy(1, 0, whole)
	last := c.decode(0, 50, left[:1], 1)[0]

	alone := c.other()
	wantLeft := alone.decode(0, 0, slices.Concat(tokens, left), 64)[40:]
	wantRight := alone.decode(1, 0, slices.Concat(tokens, right, left[:1]), 64)[40:]
	for i := range gotLeft {
		c.same("the original goes on", wantLeft[i], gotLeft[i])
		c.same("the copy goes on", wantRight[i], gotRight[i])
		c.same("a second copy goes on", wantRight[i], gotAgain[i])
	}
	c.same("a copy of the copy, after the original is gone", wantRight[10], last)
	c.differ("two continuations", wantLeft[9], wantRight[9])
	c.copy(0, 3, span(60, 70), span(7, 7)) // there is nothing
	c.fill(3, 0, tokens[:1])
	c.copy(0, 0, span(0, 5))
	c.same("a copy to itself", c.decode(0, 51, tokens[:1], 1)[0], c.decode(1, 50, slices.Concat(left[:1], tokens[:1]), 2)[1])
}

// A range that was taken out of the middle is as if it had never been copied; other sequences keep it.
func removal(c *check) {
	tokens, more := c.tokens(40), c.tokens(6)
	c.fill(0, 0, tokens)
	c.copy(0, 1, span(0, 12), span(25, 40))
	c.copy(0, 2, whole)
	c.copy(0, 3, span(25, 40)) // in any order
	c.copy(0, 3, span(0, 12))
	c.must(c.r.Remove(0, span(12, 25)))
	c.must(c.r.Remove(0, span(12, 25)))
	c.must(c.r.Remove(0, span(60, 90)))
	removed, viewed, all := c.decode(0, 40, more, 6), c.decode(1, 40, more, 2), c.decode(2, 40, more, 6)
	turned := c.decode(3, 40, more, 6)
	plain := c.other().decode(0, 0, slices.Concat(tokens, more), 64)[40:]
	for i := range more {
		c.same("removed, and never copied", removed[i], viewed[i])
		c.same("copied in another order", viewed[i], turned[i])
		c.same("the sequence that keeps the range", plain[i], all[i])
		c.differ("with the range and without", all[i], viewed[i])
	}
	c.must(c.r.Remove(0, span(44, 46))) // the end: it goes on from there
	c.same("after the end was taken away", removed[5], c.decode(0, 44, more[4:], 2)[1])
	c.must(c.r.Remove(1, whole))
	c.same("from the beginning again", c.other().decode(0, 0, tokens[:1], 1)[0], c.decode(1, 0, tokens[:1], 1)[0])
}

// Positions go on while old rows are taken away, beyond the number of cells.
func holes(c *check) {
	cells := c.r.Limits().Cells
	const keep, piece = 4, 16
	pos := 0
	for pos < cells+3*piece {
		c.fill(0, pos, c.tokens(piece))
		pos += piece
		if pos-6*piece > keep {
			c.must(c.r.Remove(0, span(keep, pos-6*piece)))
		}
	}
	// Two ways to the same rows: the first ones, some of the middle, the last one.
	more := c.tokens(3)
	view := []kv.Range{span(0, keep), span(pos-5*piece, pos-4*piece-3), span(pos-1, pos)}
	c.copy(0, 1, view...)
	got := c.decode(1, pos, more, 3)
	c.copy(0, 2, whole)
	for i, v := range view[:2] {
		c.must(c.r.Remove(2, span(v.End, view[i+1].Start)))
	}
	all := c.decode(0, pos, more, 1)
	for i, want := range c.decode(2, pos, more, 1) {
		c.same("with holes", want, got[i])
		c.differ("with holes and without", all[i], got[i])
	}
}

// All cells can be filled, shared ones count once; then nothing goes in, and what is there stays.
func full(c *check) {
	cells := c.r.Limits().Cells
	tokens, more := c.tokens(40), c.tokens(9)
	stored := kv.Tokens(c.tokens(30)...)
	c.fill(0, 0, stored.Tokens)
	c.must(c.r.Store(background, stored, 0, span(0, 30)))
	c.clear(0)

	c.fill(0, 0, tokens)
	c.copy(0, 1, span(0, 40))
	c.copy(0, 2, span(0, 30))
	c.fill(3, 0, c.tokens(cells-40))
	for range 2 {
		for _, steps := range [][]kv.Step{stepsOf(0, 40, more[:1]), stepsOf(0, 40, more[:min(9, c.r.Limits().Batch)]), stepsOf(2, 30, more[:1])} {
			if err := c.r.Decode(background, steps); !errors.Is(err, kv.ErrFull) {
				c.Fatalf("%d steps with no free cell of %d: %v, want kv.ErrFull", len(steps), cells, err)
			}
		}
		c.must(c.r.Remove(0, span(0, 0)))
		c.must(c.r.Remove(2, whole)) // the cells are still those of 0 and 1
		c.copy(0, 2, span(0, 30))
	}
	if _, err := c.r.Load(background, stored, 2, []kv.Range{span(30, 30), span(30, 31)}); err != nil {
		c.Errorf("a load of nothing with no free cell: %v", err)
	}
	c.must(c.r.Remove(2, whole))
	if _, err := c.r.Load(background, stored, 2, []kv.Range{span(0, 5), span(20, 30)}); !errors.Is(err, kv.ErrFull) {
		c.Errorf("a load with no free cell: %v, want kv.ErrFull", err)
	}
	c.must(c.r.Remove(3, span(cells-40-8, cells-40))) // eight are free
	if c.r.Limits().Batch >= 9 {
		if err := c.r.Decode(background, stepsOf(0, 40, more)); !errors.Is(err, kv.ErrFull) {
			c.Fatalf("9 steps with 8 free cells: %v, want kv.ErrFull", err)
		}
	}
	if _, err := c.r.Load(background, stored, 2, []kv.Range{span(0, 5), span(20, 30)}); !errors.Is(err, kv.ErrFull) {
		c.Errorf("a load of 15 rows with 8 free cells: %v, want kv.ErrFull", err)
	}
	got := c.decode(1, 40, more[:8], 8)
	c.must(c.r.Remove(1, span(40, 48)))
	c.must(c.r.Remove(1, whole))
	again := c.decode(0, 40, more[:8], 1)
	want := c.other().decode(0, 0, slices.Concat(tokens, more), 64)[40:]
	for i := range got {
		c.same("after a full cache", want[i], got[i])
		c.same("after a full cache, in the other sequence", want[i], again[i])
	}
}
