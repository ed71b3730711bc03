package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Restore brings the longest stored prefix of prompt into an empty sequence. The caller evaluates prompt[Tokens:] at the
// positions from Tokens on ([Session.Prefill]). At least one token is left for that, because a state carries no logits.
//
// The prefix is cut to what the context has room for. If other sequences occupy cells of the same buffer, Restore uses what they
// leave, but for one cell. Cells that several of them share count for each if the whole prefix does not fit.
//
// llama.cpp gets the state in pieces of a few MiB if sequences share one buffer and one more of them is empty. Else the session
// builds the whole state in memory. Up to 64 MiB of that memory wait for the next restore, until [Session.Trim] or until the system
// wants them. More goes back at the end.
//
// Restore never leaves a part. If ctx is cancelled, the sequence is emptied. If stored data is damaged, the sequence is emptied
// and a shorter prefix restored. An error leaves the sequence empty, but for ErrNotEmpty, which leaves it as it was.
//
// If sequences have streams of their own, Restore evaluates one token first. So no copy that llama.cpp has put off overwrites what
// is restored.
//
// The first time after the prompt's adapters change, Restore evaluates a few tokens to see that the context has them. It refuses
// adapters with which nothing is stored yet with ErrIdentity: [Session.Recheck] takes the first look.
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
