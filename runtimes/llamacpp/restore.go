package llamacpp

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Restored says what a Restore gave.
type Restored struct {
	Tokens int       // the sequence holds these leading tokens of the prompt; 0: it is empty
	Reason db.Reason // why not more
	Bytes  int64     // size of the state that llama.cpp was given
}

// Restore brings the longest stored prefix of prompt that the context has room for into an empty sequence, at most all but
// its last token: a state carries no logits, so one token at least has to be evaluated. The caller evaluates prompt[Tokens:] at the positions from
// Tokens on ([Session.Prefill]).
//
// An error leaves the sequence empty, but for ErrNotEmpty, which leaves it as it was.
func (s *Session) Restore(ctx context.Context, prompt kv.Prompt, sequence int) (Restored, error) {
	if ctx == nil {
		return Restored{}, errNoContext
	}
	if err := s.check(sequence); err != nil {
		return Restored{}, err
	}
	if n := s.tokens(sequence); n > 0 {
		return Restored{}, fmt.Errorf("%w: sequence %d has %d tokens", ErrNotEmpty, sequence, n)
	}
	delete(s.captures, sequence)
	limit := min(len(prompt.Tokens), s.room()) - 1
	if s.o.Align > 1 {
		limit -= limit % s.o.Align
	}
	for {
		if limit <= 0 {
			return Restored{Reason: db.Reason{Code: db.TooShort}}, nil
		}
		got, err := s.restore(ctx, prompt, sequence, limit)
		var again shorter
		if errors.As(err, &again) {
			limit = int(again)
			continue
		}
		return got, err
	}
}

// shorter asks for another try with that limit.
type shorter int

func (s shorter) Error() string { return fmt.Sprintf("restore at most %d tokens", int(s)) }

func (s *Session) restore(ctx context.Context, prompt kv.Prompt, sequence, limit int) (Restored, error) {
	m, err := s.model.Match(ctx, prompt, db.MatchOptions{Limit: limit})
	if err != nil {
		return Restored{}, err
	}
	defer m.Close()
	n := m.Tokens()
	if n == 0 {
		return Restored{Reason: m.Reason()}, nil
	}
	if a := s.o.Align; a > 1 && n%a != 0 {
		return Restored{}, shorter(n - n%a)
	}
	if s.mode == Opaque {
		return s.restoreOpaque(ctx, m, sequence)
	}
	window := s.lay.window
	if s.o.Align > 0 && window > 0 && n > window {
		blob, err := s.restoreLikeItself(ctx, m, prompt, sequence, n)
		if err != nil {
			return Restored{}, err
		}
		if blob != nil {
			return s.install(sequence, n, blob, m.Reason())
		}
	}
	st, blob := s.build(n, window, sequence)
	got, err := m.Restore(ctx, s.lay.rows(st))
	switch {
	case err != nil:
		return Restored{}, err
	case got.Tokens == 0:
		return Restored{Reason: got.Reason}, nil
	case got.Tokens < n: // damage: the window rows of a shorter prefix lie elsewhere
		return Restored{}, shorter(got.Tokens)
	}
	return s.install(sequence, n, blob, got.Reason)
}

// build lays out a blob of n tokens in s.buf.
func (s *Session) build(n, windowRows, sequence int) (*state.State, []byte) {
	st, blob := s.lay.format.Build(s.buf, int32(sequence), s.lay.cells(n, windowRows, sequence))
	s.buf = blob[:cap(blob)]
	return st, blob
}

// restoreLikeItself restores one row of the window more than is needed, as llama.cpp does: it hides the oldest row of the
// window only from the next token on. Nobody attends to that row, but it shifts the others by a cell, and where the cells
// lie decides in which order llama.cpp adds up. The row is one that a prefix shorter by a token needs, so that prefix is
// restored as well. No blob means that it is not stored.
func (s *Session) restoreLikeItself(ctx context.Context, m *db.Match, prompt kv.Prompt, sequence, n int) ([]byte, error) {
	before, err := s.model.Match(ctx, prompt, db.MatchOptions{Limit: n - 1})
	if err != nil {
		return nil, err
	}
	defer before.Close()
	if before.Tokens() != n-1 {
		return nil, nil
	}
	window, d := s.lay.window, s.model.Descriptor()
	st, blob := s.build(n, window+1, sequence)
	rows := s.lay.rows(st)
	got, err := before.Restore(ctx, s.lay.only(d, rows, n-1-window, n-1, false))
	if err != nil || got.Tokens != n-1 {
		return nil, err
	}
	got, err = m.Restore(ctx, s.lay.only(d, rows, n-window, n, true))
	if err != nil || got.Tokens != n {
		return nil, err
	}
	return blob, nil
}

func (s *Session) restoreOpaque(ctx context.Context, m *db.Match, sequence int) (Restored, error) {
	n := m.Tokens()
	size, err := m.StateBytes(0)
	if err != nil {
		return Restored{}, err
	}
	if size == 0 {
		return Restored{Reason: m.Reason()}, nil
	}
	blob := s.memoryFor(int(size))
	got, err := m.Restore(ctx, kv.Rows{kv.Packed(n, 1, blob)})
	switch {
	case err != nil:
		return Restored{}, err
	case got.Tokens == 0:
		return Restored{Reason: got.Reason}, nil
	case got.Tokens < n: // damage: the state at a shorter prefix has another size
		return Restored{}, shorter(got.Tokens)
	}
	return s.install(sequence, n, blob, got.Reason)
}

// install hands a blob of n tokens to llama.cpp and checks what became of it.
func (s *Session) install(sequence, n int, blob []byte, reason db.Reason) (Restored, error) {
	if err := s.set(sequence, blob); err != nil {
		return Restored{}, err
	}
	if have := s.tokens(sequence); have != n {
		s.clear(sequence)
		return Restored{}, fmt.Errorf("%w: after a restore of %d tokens sequence %d has %d", ErrState, n, sequence, have)
	}
	return Restored{Tokens: n, Reason: reason, Bytes: int64(len(blob))}, nil
}
