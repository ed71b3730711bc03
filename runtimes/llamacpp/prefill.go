package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Prefill evaluates prompt[from:] in a sequence that holds the tokens before. Batches end at multiples of their size,
// counted from position 0, so that a prompt is cut in the same places wherever it starts. The logits of the last token
// are there afterwards. For a sliding-window model it calls [Session.Capture] after every batch. Where a state cannot be cut (Opaque,
// Hybrid), one batch ends 4 tokens before the end, and the state there is kept for Save, as are some on the way of a long prompt.
//
// It evaluates token ids: what lies in a span (an image) is evaluated by the caller, but for Options.TokenSpans. A prompt that the context has no room
// for is refused with ErrTooLong before anything is evaluated, and so is one with ErrLineage that goes on where its tokens would not see all that they should: further
// back in a sliding-window model than what Restore brought and llama.cpp kept, or behind a state that cannot be cut and that Decode left half done.
func (s *Session) Prefill(ctx context.Context, prompt kv.Prompt, from, sequence int) error {
	if err := s.begin(ctx, sequence); err != nil {
		return err
	}
	prompt = ordered(prompt)
	if err := prompt.Validate(); err != nil { // before anything is evaluated that Save would refuse
		return err
	}
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
		s.clear(sequence) // full-attention layers may have rows that window layers lost: llama.cpp then says that the sequence is empty
	}
	l := s.line(sequence)
	if from > 0 && len(l.prompt.Tokens) == 0 {
		l.unseen = true
	}
	whole := l.agrees(prompt, from, sequence) == nil // else it was shifted: what follows is an approximation in any case
	// Where a sequence has its cells for itself, their order tells of a shift afterwards, unless its state is kept whole.
	if whole && (l.unsettled || s.mode == Opaque || !s.ownCells() || s.streams() && s.captures()) {
		err := s.settled(l, from, sequence)
		if err != nil && !errors.Is(err, ErrLineage) {
			return err
		}
		whole = err == nil
	}
	if whole {
		if err := s.back(l, from, sequence); err != nil {
			return err
		}
		l.holds(prompt.Prefix(from))
		if from > 0 && from != l.stored && l.captured.end() < from { // what was evaluated without a look at the window
			if err := s.captureEvaluated(ctx, prompt.Prefix(from), sequence); err != nil {
				return err
			}
		}
	}
	turn, begin, start := s.goesOn(prompt, from, sequence), from, time.Now()
	defer func() { turn.prefilled(begin, from, time.Since(start)) }()
	batch, last := s.BatchTokens(), from
	for from < len(prompt.Tokens) {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := s.batchEnd(prompt, from, batch, last)
		if err := s.decode(prompt.Tokens[from:end], from, sequence); err != nil {
			if s.stops() && s.tokens(sequence) != from {
				l.wrong = &LineageError{sequence, from, fmt.Sprintf("Decode failed when the state had taken in some of the tokens [%d, %d): empty the sequence", from, end)}
			}
			if s.mode == Rows && l.agrees(prompt, from, sequence) == nil { // the micro-batches before the one that failed
				l.holds(prompt.Prefix(prompt.Clip(min(s.tokens(sequence), end))))
			}
			return fmt.Errorf("llamacpp: evaluate the tokens [%d, %d): %w", from, end, err)
		}
		from = end
		known := l.agrees(prompt, from, sequence) == nil
		if known {
			l.holds(prompt.Prefix(from))
		}
		if err := s.captureEvaluated(ctx, prompt.Prefix(from), sequence); err != nil {
			return err
		}
		if !known { // what it holds is not this prompt
			continue
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

// turn is what the session saw of a turn that has not ended.
type turn struct {
	db.Observation
	end int // tokens that the sequence had after the last Prefill; 0: there was none
}

// Observe ends a turn of a sequence and tells the store of it ([db.Model.Observe]): what Restore and Prefill did there since the turn before,
// and how many tokens the caller decoded behind that, in how much time.
//
// Without it, a turn ends with the next Restore, Reset, or Prefill from where the one before it did not end; tokens in between count as
// decoded, in no time. What was restored counts as not reused if neither Prefill nor Observe says that tokens were computed behind it.
func (s *Session) Observe(sequence, decoded int, took time.Duration) {
	t := s.turns[sequence]
	if t == nil {
		t = &turn{}
		s.turns[sequence] = t
	}
	if t.end == 0 && decoded > 0 {
		t.Reused = t.Loaded
	}
	t.Decoded, t.Decode = t.Decoded+decoded, t.Decode+took
	s.ended(sequence)
}

// ended tells the store of a sequence's turn, if there is one.
func (s *Session) ended(sequence int) {
	if t := s.turns[sequence]; t != nil {
		delete(s.turns, sequence)
		t.Unused = max(0, t.Loaded-t.Reused)
		s.model.Observe(t.Observation)
	}
}

// goesOn is the turn to which a Prefill from that position belongs.
func (s *Session) goesOn(prompt kv.Prompt, from, sequence int) *turn {
	t := s.turns[sequence]
	if t != nil && t.end > 0 && t.end != from {
		t.Decoded += max(0, from-t.end)
		s.ended(sequence)
		t = nil
	}
	if t == nil {
		t = &turn{}
		s.turns[sequence] = t
	}
	if t.end == 0 {
		t.Reused = from
	}
	t.Asked = max(t.Asked, len(prompt.Tokens))
	return t
}

// prefilled notes that the positions [from, to) were evaluated.
func (t *turn) prefilled(from, to int, took time.Duration) {
	t.end, t.Prefilled, t.Prefill = to, t.Prefilled+to-from, t.Prefill+took
}
