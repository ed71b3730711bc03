package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Prefill evaluates prompt[from:] in a sequence that holds the tokens before. The logits of the last token are there afterwards.
// Batches end at multiples of their size, counted from position 0, so that a prompt is cut in the same places wherever it starts.
//
// For a sliding-window model it calls [Session.Capture] after every batch. Where a state cannot be cut (Opaque, Hybrid), one batch
// ends 4 tokens before the end, and the state there is kept for Save, as are some on the way of a long prompt.
//
// It evaluates token ids. The caller evaluates what lies in a span (an image), but for Options.TokenSpans.
//
// Prefill refuses before it evaluates anything. ErrTooLong says that the context has no room for the prompt. ErrLineage says that the
// tokens would not see all that they should. They begin further back in a sliding-window model than what Restore brought and
// llama.cpp kept, or behind a state that cannot be cut and that Decode left half done.
func (s *Session) Prefill(ctx context.Context, prompt kv.Prompt, from, sequence int) error {
	if err := s.begin(ctx, sequence); err != nil {
		return err
	}
	prompt = ordered(prompt)
	if err := s.mayPrefill(prompt, from, sequence); err != nil {
		return err
	}
	if from == 0 {
		s.known.forget(sequence)
		s.cells.clear(sequence) // full-attention layers may have rows that window layers lost: llama.cpp then says that the sequence is empty
	}
	l := s.known.line(sequence)
	if err := s.goOn(ctx, l, prompt, from); err != nil {
		return err
	}
	turn, start := s.turns.goesOn(prompt, from, sequence), time.Now()
	end, err := s.evaluate(ctx, l, prompt, from)
	turn.prefilled(from, end, time.Since(start))
	return err
}

// mayPrefill refuses what cannot be evaluated, or what Save would refuse afterwards.
func (s *Session) mayPrefill(prompt kv.Prompt, from, sequence int) error {
	if err := prompt.Validate(); err != nil {
		return err
	}
	if err := s.identity.checked(prompt); errors.Is(err, ErrIdentity) { // a store that fails does not keep tokens from being evaluated
		return err
	}
	if s.deferred.decode == nil {
		return ErrNeedDecode
	}
	if room := s.cells.room(); len(prompt.Tokens) > room {
		return fmt.Errorf("%w: %d tokens, room for %d in a sequence", ErrTooLong, len(prompt.Tokens), room)
	}
	if have := s.cells.tokens(sequence); have != from {
		return fmt.Errorf("%w: sequence %d has %d tokens, not %d", ErrPositions, sequence, have, from)
	}
	for _, span := range prompt.Spans {
		if span.End() > from && !(s.o.TokenSpans && span.Len == 1) {
			return fmt.Errorf("llamacpp: the positions [%d, %d) are a span, which Prefill cannot evaluate", span.Start, span.End())
		}
	}
	return nil
}

// goOn looks at what the sequence holds before the first token is evaluated behind it. The error says that tokens there would not
// see all that they should.
func (s *Session) goOn(ctx context.Context, l *lineage, prompt kv.Prompt, from int) error {
	if from > 0 && len(l.prompt.Tokens) == 0 {
		l.unseen = true
	}
	if l.agrees(prompt, from) != nil { // it was shifted: what follows is an approximation in any case
		return nil
	}
	// Where a sequence has its cells for itself, their order tells of a shift afterwards, unless its state is kept whole.
	if l.unsettled || s.form.mode == Opaque || !s.deferred.ownCells() || s.deferred.streams() && s.form.captures() {
		err := s.deferred.settled(l, from)
		if errors.Is(err, ErrLineage) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if err := s.known.back(l, from); err != nil {
		return err
	}
	l.holds(prompt.Prefix(from))
	if from > 0 && from != l.stored && l.captured.End() < from { // what was evaluated without a look at the window
		return s.captureEvaluated(ctx, prompt.Prefix(from), l.sequence)
	}
	return nil
}

// evaluate evaluates prompt[from:] in batches, and returns where it ended.
func (s *Session) evaluate(ctx context.Context, l *lineage, prompt kv.Prompt, from int) (int, error) {
	batch, last := s.BatchTokens(), from
	way := &onTheWay{cells: s.cells, form: s.form, known: s.known, bytes: s.o.CaptureBytes, prompt: prompt}
	for from < len(prompt.Tokens) {
		if err := ctx.Err(); err != nil {
			return from, err
		}
		end := s.form.batchEnd(prompt, from, batch, last)
		if err := s.deferred.evaluate(prompt.Tokens[from:end], from, l.sequence); err != nil {
			if s.form.stops() && s.cells.tokens(l.sequence) != from {
				l.wrong = l.contradiction(from, fmt.Sprintf("Decode failed when the state had taken in some of the tokens [%d, %d): empty the sequence", from, end))
			}
			if s.form.mode == Rows && l.agrees(prompt, from) == nil { // the micro-batches before the one that failed
				l.holds(prompt.Prefix(prompt.Clip(min(s.cells.tokens(l.sequence), end))))
			}
			return from, fmt.Errorf("llamacpp: evaluate the tokens [%d, %d): %w", from, end, err)
		}
		from = end
		known := l.agrees(prompt, from) == nil
		if known {
			l.holds(prompt.Prefix(from))
		}
		if err := s.captureEvaluated(ctx, prompt.Prefix(from), l.sequence); err != nil {
			return from, err
		}
		if !known { // what it holds is not this prompt
			continue
		}
		var err error
		if last, err = way.take(l, from, last); err != nil {
			return from, err
		}
	}
	return from, nil
}
