package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Restore brings the longest stored prefix of prompt that the context has room for into an empty sequence, at most all but
// its last token: a state carries no logits, so one token at least has to be evaluated. The caller evaluates prompt[Tokens:] at the positions from
// Tokens on ([Session.Prefill]). Where other sequences occupy cells of the same buffer, what is left is used but for one cell;
// cells that several of them share are taken to be as many, if the whole prefix does not fit.
//
// The state is handed over in pieces of a few MiB where sequences share one buffer and one more of them is empty; else
// the session builds all of it in memory, which waits for the next restore if it is no more than 64 MiB, until [Session.Trim] or until the system wants it,
// and else is given back at the end. Damage that is met on the way, or ctx being cancelled,
// never leaves a part: the sequence is emptied, and after damage a shorter prefix restored.
//
// Where sequences have streams of their own, it evaluates one token first, so that no copy that llama.cpp has put off overwrites what is restored.
//
// The first time after the prompt's adapters are others than before, it evaluates a few tokens to see that the context has them; adapters
// with which nothing is stored yet are refused with ErrIdentity: [Session.Recheck] takes the first look.
//
// An error leaves the sequence empty, but for ErrNotEmpty, which leaves it as it was.
func (s *Session) Restore(ctx context.Context, prompt kv.Prompt, sequence int) (Restored, error) {
	if err := s.begin(ctx, sequence); err != nil {
		return Restored{}, err
	}
	prompt = ordered(prompt)
	if n := s.cells.tokens(sequence); n > 0 {
		return Restored{}, fmt.Errorf("%w: sequence %d has %d tokens", ErrNotEmpty, sequence, n)
	}
	s.cells.clear(sequence) // as Prefill from position 0 does
	err := s.identity.checked(prompt)
	if errors.Is(err, ErrIdentity) { // other adapters
		err = s.identity.recheck(ctx, sequence, prompt.Adapters, false)
	}
	if err != nil {
		return Restored{}, err
	}
	s.known.begin(sequence, &lineage{unsettled: true})
	defer s.cells.giveBack()
	turn, start := s.turns.begins(sequence, len(prompt.Tokens)), time.Now()
	r := &restoring{
		cells: s.cells, form: s.form, known: s.known, deferred: s.deferred, model: s.model, align: s.o.Align,
		prompt: prompt, sequence: sequence, turn: turn,
	}
	got, err := r.most(ctx)
	turn.Loaded, turn.Reason, turn.Load = got.Tokens, got.Reason, time.Since(start)-turn.Lookup
	return got, err
}
