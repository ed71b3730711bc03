package chat

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// slice is how many tokens are decoded between two looks at the context.
const slice = 256

// steps decodes one batch. If the cache is full, it parks idle conversations other than keep.
func (h *Host) steps(ctx context.Context, keep *Conversation, steps []kv.Step) error {
	for {
		err := h.rt.Decode(ctx, steps)
		if !errors.Is(err, kv.ErrFull) || !h.parkOldest(keep) {
			return err
		}
	}
}

// decode computes tokens from a position on, and returns how many it has computed. If scores are wanted, it returns those after the last token, in
// the runtime's memory.
func (h *Host) decode(ctx context.Context, keep *Conversation, seq, pos int, tokens []kv.Token, want bool) ([]float32, int, error) {
	n := 0
	var steps []kv.Step
	for n < len(tokens) {
		if err := ctx.Err(); err != nil {
			return nil, n, err
		}
		steps = steps[:0]
		for k := n; k < min(len(tokens), n+min(slice, h.lim.Batch)); k++ {
			steps = append(steps, kv.Step{Token: tokens[k], Pos: pos + k, Seq: seq, Logits: want && k == len(tokens)-1})
		}
		if err := h.steps(ctx, keep, steps); err != nil {
			return nil, n, err
		}
		n += len(steps)
	}
	if !want || n == 0 {
		return nil, n, nil
	}
	return h.rt.Logits(len(steps) - 1), n, nil
}

// check returns ErrOptions for a token that the model does not have: in a log, it could never be computed.
func (h *Host) check(tokens []kv.Token) error {
	for _, t := range tokens {
		if v := h.lim.Vocabulary; t < 0 || v > 0 && int(t) >= v {
			return fmt.Errorf("%w: token %d, and the model has %d", ErrOptions, t, v)
		}
	}
	return nil
}

// loadRows is Runtime.Load. If the cache is full, it parks idle conversations other than keep.
func (h *Host) loadRows(ctx context.Context, keep *Conversation, p kv.Prompt, seq int, rs []kv.Range) (int, error) {
	for {
		n, err := h.rt.Load(ctx, p, seq, rs)
		if !errors.Is(err, kv.ErrFull) || !h.parkOldest(keep) {
			return n, err
		}
	}
}

// view makes a sequence that has the given rows of a conversation.
func (h *Host) view(c *Conversation, view []kv.Range) (int, error) {
	seq, err := h.acquire(c)
	if err != nil {
		return 0, err
	}
	for _, r := range view {
		if err := h.rt.Copy(c.seq, seq, r); err != nil {
			return 0, errors.Join(err, h.release(seq))
		}
	}
	return seq, nil
}
