package chat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Sampler chooses a token by the scores of all tokens. It must not keep or change the scores. The host is locked while it runs, so it must not call
// the host, a conversation or a turn. A nil Sampler is [Greedy].
type Sampler func(scores []float32) kv.Token

// Greedy returns the token with the highest score, or the first of several.
func Greedy(scores []float32) kv.Token {
	best := 0
	for i, s := range scores {
		if s > scores[best] {
			best = i
		}
	}
	return kv.Token(best)
}

// choose returns the sampler's token, or ErrOptions if the model does not have it.
func (h *Host) choose(sample Sampler, scores []float32) (kv.Token, error) {
	if sample == nil {
		sample = Greedy
	}
	t := sample(scores)
	if err := h.check([]kv.Token{t}); err != nil {
		return 0, fmt.Errorf("the sampler chose: %w", err)
	}
	return t, nil
}

// Stop says whether a token ends the answer. The token is part of the answer. With a nil Stop, the answer ends when the caller leaves the loop or the
// turn is full.
type Stop func(kv.Token) bool

// Generate samples tokens and yields each, up to the one that ends the answer. If the caller leaves the loop or ctx is done, the turn keeps the tokens
// that were yielded. When the turn is full, the last pair has [ErrTurnFull], and the turn can still be committed. Other conversations go on between two
// tokens.
func (t *Turn) Generate(ctx context.Context, sample Sampler, stop Stop) iter.Seq2[kv.Token, error] {
	return func(yield func(kv.Token, error) bool) {
		for {
			token, err := t.next(ctx, sample)
			if err != nil {
				yield(0, err)
				return
			}
			if !yield(token, nil) || stop != nil && stop(token) {
				return
			}
		}
	}
}

func (t *Turn) next(ctx context.Context, sample Sampler) (kv.Token, error) {
	leave, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return t.sample(ctx, sample)
}

// sample adds the token that the sampler chooses.
func (t *Turn) sample(ctx context.Context, sample Sampler) (kv.Token, error) {
	if len(t.tokens) >= t.room {
		return 0, ErrTurnFull
	}
	if err := t.decode(ctx); err != nil {
		return 0, err
	}
	token, err := t.c.h.choose(sample, t.scores)
	if err == nil {
		t.tokens = append(t.tokens, token)
	}
	return token, err
}

// Verify checks a draft, the tokens that a faster model expects, and computes it in one batch. The answer gets the tokens of the draft up to the first one
// that the sampler would not have chosen, and then the token that it chooses there. accepted counts the tokens of the draft.
func (t *Turn) Verify(ctx context.Context, draft []kv.Token, sample Sampler) (accepted int, err error) {
	leave, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	h := t.c.h
	if err := h.check(draft); err != nil {
		return 0, err
	}
	if len(t.tokens) >= t.room {
		return 0, ErrTurnFull
	}
	draft = draft[:min(len(draft), t.room-len(t.tokens)-1, max(0, h.lim.Batch-(len(t.tokens)-t.rows)))]
	if len(draft) == 0 || len(t.tokens)-t.rows >= h.lim.Batch {
		_, err := t.sample(ctx, sample)
		return 0, err
	}
	if t.rows == len(t.tokens) && !t.known {
		return 0, fmt.Errorf("%w: nothing to go on from", ErrTurnEnded)
	}
	began := time.Now()
	wait := t.tokens[t.rows:]
	var steps []kv.Step
	for i, token := range append(slices.Clone(wait), draft...) {
		steps = append(steps, kv.Step{Token: token, Pos: t.part.start + t.rows + i, Seq: t.seq, Logits: i >= len(wait)-1})
	}
	if err := h.steps(ctx, t.c, steps); err != nil {
		return 0, err
	}
	t.stats.Decoded += len(steps)
	t.c.stats.Decoded += len(steps)
	t.c.stats.Drafted += len(draft)
	scores := t.scores
	had := len(t.tokens)
	for {
		if at := len(wait) - 1 + accepted; at >= 0 {
			scores = h.rt.Logits(at)
		}
		token, err := h.choose(sample, scores)
		if err != nil { // undo the batch
			t.tokens = t.tokens[:had]
			start := t.part.start + t.rows
			return 0, errors.Join(err, h.rt.Remove(t.seq, kv.Range{Start: start, End: start + len(steps)}))
		}
		t.tokens = append(t.tokens, token)
		if accepted == len(draft) || token != draft[accepted] {
			break
		}
		accepted++
	}
	t.c.stats.Accepted += accepted
	t.rows = len(t.tokens) - 1
	t.known = false
	t.stats.Decode += time.Since(began)
	t.c.stats.Decode += time.Since(began)
	if accepted < len(draft) {
		end := t.part.start + t.rows
		return accepted, h.rt.Remove(t.seq, kv.Range{Start: end, End: end + len(draft) - accepted})
	}
	return accepted, nil
}

// Lookup drafts up to limit tokens from the text itself. It finds the last place where the last n tokens stood before, and returns what followed there.
func Lookup(tokens []kv.Token, n, limit int) []kv.Token {
	if n < 1 || limit < 1 || len(tokens) <= n {
		return nil
	}
	key := tokens[len(tokens)-n:]
	for i := len(tokens) - n - 1; i >= 0; i-- {
		if slices.Equal(tokens[i:i+n], key) {
			return tokens[i+n : min(i+n+limit, len(tokens))]
		}
	}
	return nil
}
