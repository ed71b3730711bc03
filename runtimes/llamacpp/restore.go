package llamacpp

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Restored says what a Restore gave.
type Restored struct {
	Tokens int       // the sequence holds these leading tokens of the prompt; 0: it is empty
	Reason db.Reason // why not more
	Bytes  int64     // size of the state that llama.cpp was given
}

// Restore brings the longest stored prefix of prompt into an empty sequence, at most all but its last token: a state
// carries no logits, so one token at least has to be evaluated. The caller evaluates prompt[Tokens:] at the positions from
// Tokens on ([Session.Prefill]).
//
// An error leaves the sequence empty, but for ErrNotEmpty, which leaves it as it was.
func (s *Session) Restore(ctx context.Context, prompt kv.Prompt, sequence int) (Restored, error) {
	if n := s.tokens(sequence); n > 0 {
		return Restored{}, fmt.Errorf("%w: sequence %d has %d tokens", ErrNotEmpty, sequence, n)
	}
	delete(s.captures, sequence)
	limit := min(len(prompt.Tokens)-1, int(s.lib.ContextTokens(s.lctx)))
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
	st, blob := s.lay.format.Build(s.buf, int32(sequence), s.lay.cells(n, sequence))
	s.buf = blob[:cap(blob)]
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
