package chat

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// MaxBranchTokens is how many tokens a branch may have.
const MaxBranchTokens = 128

// Fork makes n branches of a turn, which share its rows. The turn goes on when one of them is promoted or all are dropped.
func (t *Turn) Fork(ctx context.Context, n int) ([]*Branch, error) {
	leave, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if n < 1 {
		return nil, fmt.Errorf("%w: %d branches", ErrOptions, n)
	}
	if err := t.decode(ctx); err != nil {
		return nil, err
	}
	all := append(slices.Clone(t.part.view), kv.Range{Start: t.part.start, End: t.part.start + t.rows})
	for range n {
		b := &Branch{t: t, scores: slices.Clone(t.scores)}
		if b.seq, err = t.c.h.acquire(t.c); err == nil {
			t.branches = append(t.branches, b)
			for _, r := range merged(all) {
				if err = t.c.h.rt.Copy(t.seq, b.seq, r); err != nil {
					break
				}
			}
		}
		if err != nil {
			t.dropBranches()
			return nil, err
		}
	}
	return slices.Clone(t.branches), nil
}

// Advance adds next[i] to branches[i], and computes all of these tokens in one batch.
func (t *Turn) Advance(ctx context.Context, branches []*Branch, next [][]kv.Token) error {
	h := t.c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(branches) != len(next) {
		return fmt.Errorf("%w: tokens for %d branches, and %d branches", ErrOptions, len(next), len(branches))
	}
	var steps []kv.Step
	for i, b := range branches {
		switch {
		case b.gone || b.t != t:
			return ErrBranch
		case len(b.tokens)+len(next[i]) > MaxBranchTokens || len(t.tokens)+len(b.tokens)+len(next[i]) > t.room:
			return fmt.Errorf("%w: branch %d", ErrTurnFull, i)
		case slices.Contains(branches[:i], b):
			return fmt.Errorf("%w: branch %d is there twice", ErrOptions, i)
		}
		if err := h.check(next[i]); err != nil {
			return fmt.Errorf("branch %d: %w", i, err)
		}
		for k, token := range next[i] {
			steps = append(steps, kv.Step{Token: token, Pos: t.part.start + t.rows + b.rows + k, Seq: b.seq, Logits: k == len(next[i])-1})
		}
	}
	if len(steps) > h.lim.Batch {
		return fmt.Errorf("%w: %d tokens, and a batch has %d", ErrOptions, len(steps), h.lim.Batch)
	}
	if len(steps) == 0 {
		return nil
	}
	began := time.Now()
	if err := h.steps(ctx, t.c, steps); err != nil {
		return err
	}
	took := time.Since(began)
	t.c.stats.Decoded += len(steps)
	t.c.stats.Decode += took
	t.stats.Decoded += len(steps)
	t.stats.Decode += took
	at := 0
	for i, b := range branches {
		b.tokens = append(b.tokens, next[i]...)
		b.rows = len(b.tokens)
		if at += len(next[i]); len(next[i]) > 0 {
			b.scores = append(b.scores[:0], h.rt.Logits(at-1)...)
		}
	}
	return nil
}

// Logits returns the scores of the next token. They stay valid until the branch is advanced.
func (b *Branch) Logits() []float32 {
	b.t.c.h.mu.Lock()
	defer b.t.c.h.mu.Unlock()
	return b.scores
}

// Tokens returns the tokens of the branch, without those of its turn.
func (b *Branch) Tokens() []kv.Token {
	b.t.c.h.mu.Lock()
	defer b.t.c.h.mu.Unlock()
	return slices.Clone(b.tokens)
}

// Promote adds the branch's tokens to its turn, and drops all other branches.
func (b *Branch) Promote(ctx context.Context) error {
	t := b.t
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	if b.gone {
		return ErrBranch
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	start := t.part.start + t.rows
	if err := t.c.h.rt.Copy(b.seq, t.seq, kv.Range{Start: start, End: start + b.rows}); err != nil {
		return err
	}
	t.tokens = append(t.tokens, b.tokens...)
	t.rows += b.rows
	t.scores = append(t.scores[:0], b.scores...)
	t.dropBranches()
	return nil
}

// Drop drops the branch.
func (b *Branch) Drop() error {
	t := b.t
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	if b.gone {
		return nil
	}
	b.gone = true
	t.branches = slices.DeleteFunc(t.branches, func(x *Branch) bool { return x == b })
	return t.c.h.release(b.seq)
}
