package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// Prefill evaluates prompt[from:] in a sequence that holds the tokens before. Batches end at multiples of their size,
// counted from position 0, so that a prompt is cut in the same places wherever it starts. The logits of the last token
// are there afterwards. For a sliding-window model it calls [Session.Capture] after every batch. Where a state cannot be cut (Opaque,
// Hybrid), one batch ends 4 tokens before the end, and the state there is kept for Save, as are some on the way of a long prompt.
//
// It evaluates token ids: what lies in a span (an image) is evaluated by the caller, but for Options.TokenSpans. A prompt that the context has no room
// for is refused with ErrTooLong before anything is evaluated.
func (s *Session) Prefill(ctx context.Context, prompt kv.Prompt, from, sequence int) error {
	if ctx == nil {
		return errNoContext
	}
	if err := s.check(sequence); err != nil {
		return err
	}
	prompt = ordered(prompt)
	if err := s.identified(prompt); errors.Is(err, ErrIdentity) { // a store that fails does not keep tokens from being evaluated
		return err
	}
	if s.o.Decode == nil {
		return ErrNeedDecode
	}
	if room := s.room(); len(prompt.Tokens) > room {
		return fmt.Errorf("%w: %d tokens, room for %d in a sequence", ErrTooLong, len(prompt.Tokens), room)
	}
	if have := s.tokens(sequence); have != from {
		return fmt.Errorf("%w: sequence %d has %d tokens, not %d", ErrPositions, sequence, have, from)
	}
	for _, span := range prompt.Spans {
		if span.End() > from && !(s.o.TokenSpans && span.Len == 1) {
			return fmt.Errorf("llamacpp: the positions [%d, %d) are a span, which Prefill cannot evaluate", span.Start, span.End())
		}
	}
	if from == 0 {
		delete(s.lines, sequence)
	}
	l := s.line(sequence)
	if from > 0 && len(l.prompt.Tokens) == 0 {
		l.unseen = true
	}
	if l.agrees(prompt, from, sequence) == nil {
		l.cut(from)
		l.holds(prompt.Prefix(from))
		if from > 0 && from != l.stored && l.captured.end() < from { // what was evaluated without a look at the window
			if err := s.captureEvaluated(ctx, prompt.Prefix(from), sequence); err != nil {
				return err
			}
		}
	}
	batch, last := s.BatchTokens(), from
	for from < len(prompt.Tokens) {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := s.batchEnd(prompt, from, batch, last)
		if err := s.o.Decode(prompt.Tokens[from:end], from, sequence); err != nil {
			return fmt.Errorf("llamacpp: evaluate the tokens [%d, %d): %w", from, end, err)
		}
		from = end
		if l.agrees(prompt, from, sequence) == nil {
			l.holds(prompt.Prefix(from))
		}
		if err := s.captureEvaluated(ctx, prompt.Prefix(from), sequence); err != nil {
			return err
		}
		var err error
		if last, err = s.checkpoint(l, prompt, from, last, sequence); err != nil {
			return err
		}
	}
	return nil
}

// room is how many tokens a sequence can hold.
func (s *Session) room() int {
	if s.lib.IsRecurrent(s.lib.GetModel(s.lctx)) { // its state does not grow
		return math.MaxInt
	}
	n := s.lib.ContextTokens(s.lctx)
	if s.lib.ContextTokensEach != nil {
		n = min(n, s.lib.ContextTokensEach(s.lctx))
	}
	return int(n)
}

// BatchTokens is how many tokens Prefill evaluates at a time.
func (s *Session) BatchTokens() int {
	n := int(s.lib.Batch(s.lctx))
	if s.mode == Rows && s.lay.window > 0 {
		c := s.o.CaptureTokens
		if c <= 0 {
			c = min(int(s.lib.MicroBatch(s.lctx)), s.lay.window+1)
		}
		n = min(n, c)
	}
	return max(1, n)
}
