package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/window"
)

// Capture copies the window layers' rows of a sliding-window model out of the cache, for [Session.Save], before the cache forgets
// them. prompt is what the sequence holds. A program with its own loop around llama_decode calls Capture after every batch of at most
// [Session.BatchTokens] tokens; Prefill does so by itself.
//
// Of an Opaque model it notes what the sequence holds, without which Save refuses it. Of other models it does nothing. A prompt that
// contradicts what the session knows of the sequence is refused with ErrLineage.
//
// All sequences together hold at most Options.CaptureBytes. Beyond that, the sequence that holds most gives its rows up. If it is
// this one, its rows are saved, and an error is Save's. The rows of another sequence are dropped, and their positions are not
// restorable. So name the prompt's owner (Scope, ScopeStart) here and to Prefill: Save alone is too late for rows that were saved before.
func (s *Session) Capture(ctx context.Context, prompt kv.Prompt, sequence int) error {
	if err := s.begin(ctx, sequence); err != nil {
		return err
	}
	prompt = ordered(prompt)
	if err := prompt.Validate(); err != nil {
		return err
	}
	l := s.known.line(sequence)
	if err := l.agrees(prompt, len(prompt.Tokens)); err != nil {
		return err
	}
	if err := l.refuses(len(prompt.Tokens)); err != nil {
		return err
	}
	if err := s.identity.checked(prompt); err != nil {
		return err
	}
	if n := len(l.prompt.Tokens); s.deferred.streams() && s.form.captures() && (l.unsettled || n == 0 || len(prompt.Tokens)-n > s.BatchTokens()) {
		if err := s.deferred.settled(l, len(prompt.Tokens)); err != nil {
			return err
		}
	}
	if s.form.mode == Opaque && s.cells.tokens(sequence) == len(prompt.Tokens) {
		if len(l.prompt.Tokens) == 0 && len(prompt.Tokens) > s.BatchTokens() {
			l.unseen = true
		}
		l.holds(prompt)
	}
	if !s.form.captures() {
		return nil
	}
	if s.o.CaptureTokens > s.form.lay.Window+1 { // rows between two looks are lost, so every look is saved for itself
		if prompt.Clip(len(prompt.Tokens)) != len(prompt.Tokens) {
			return nil
		}
		_, err := s.Save(ctx, prompt, sequence)
		return err
	}
	flags, format, section := uint32(0), s.form.lay.Format, layout.Window
	if s.form.tail {
		flags, format, section = FlagPartial, format.Tail(), 0
	}
	defer s.cells.giveBack()
	blob, err := s.cells.get(sequence, flags)
	if err != nil {
		return err
	}
	st, err := format.Parse(blob)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	sec := &st.Sections[section]
	if _, end, whole := sec.Range(); !whole || end != len(prompt.Tokens) {
		return fmt.Errorf("%w: the window of sequence %d ends at %d, expected %d", ErrPositions, sequence, end, len(prompt.Tokens))
	}
	l.holds(prompt)
	l.captured.Grow(s.form.lay, s.model.Descriptor(), sec, 0, len(prompt.Tokens))
	if s.known.bytes() > s.o.CaptureBytes {
		return s.makeRoom(ctx, prompt, sequence)
	}
	return nil
}

// makeRoom gives up what the session holds beyond its bound. Another sequence that holds more than the one at hand loses its
// captured rows, and can then be restored at fewer positions. It is not saved, since only its owner knows what it holds by now.
// Otherwise the one at hand is saved.
func (s *Session) makeRoom(ctx context.Context, prompt kv.Prompt, sequence int) error {
	l := s.known.lines[sequence]
	if most := s.known.mostCaptured(l); most != l {
		most.captured = window.Captured{}
		return nil
	}
	if prompt.Clip(len(prompt.Tokens)) != len(prompt.Tokens) {
		return nil
	}
	_, err := s.Save(ctx, prompt, sequence)
	if err != nil && ctx.Err() == nil {
		l.captured = window.Captured{} // or they would be more with every look
	}
	return err
}

// captureEvaluated captures what Prefill has evaluated; after a shift there is nothing that could be saved. A store that does not take
// the rows (it is full, closed or only read) does not end the evaluation: Save says so.
func (s *Session) captureEvaluated(ctx context.Context, prompt kv.Prompt, sequence int) error {
	err := s.Capture(ctx, prompt, sequence)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrIdentity), errors.Is(err, ErrState), errors.Is(err, ErrPositions):
		return err
	case !errors.Is(err, ErrLineage):
		s.o.Logger.Warn("window rows that were captured are not stored: prompts cannot be restored there", slog.Any("why", err))
	}
	s.known.line(sequence).captured = window.Captured{}
	return nil
}
