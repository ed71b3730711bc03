package llamacpp

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Save stores what the sequence holds of prompt. The cache must have been filled with exactly these tokens (with these
// spans and adapters) at the positions from 0 on: llama.cpp keeps no tokens. It may hold more tokens than the prompt, or,
// before the prompt is evaluated to its end, fewer: then that much is stored.
//
// What the session restored, evaluated, captured or saved in the sequence, it knows: tokens, and a sample of the rows that
// went through its hands. What contradicts that is refused with ErrLineage, and nothing is stored. For all else, the
// caller's word is taken; but of an Opaque state it must have seen the first tokens, since nothing in it tells more. Rows of shifted positions (llama_memory_seq_add) must never be saved, not behind any number of
// decodes either: they are approximations. A caller who changed the sequence without the session says so ([Session.Reset],
// [Session.Truncate]).
//
// llama.cpp copies rows between streams, and rotates the keys of shifted positions, in the next llama_decode only. So rows that the session did not see come are looked at
// before and after a token is evaluated in an empty sequence (else behind the end of one) and removed again: what changes by that was shifted, or copied without a word, and is refused with ErrLineage.
// A copy that Reset told of is stored. The logits of the last decode stay, if it was asked for those of one token.
//
// What is stored already is not read: of a prompt that is stored as a whole nothing at all, and then nothing is checked but its tokens.
// Where sequences share one buffer and one of them is empty, the others' rows are read only; else the whole state.
//
// Of the window layers of a sliding-window model, the cache holds only the last rows. They are stored, so that the prompt
// can be restored at and shortly before its end; what [Session.Prefill] saw on the way is stored too, and makes every
// other position restorable. An Opaque or Hybrid state is stored at the sequence's last position, with those that Prefill took
// on the way, and nowhere else: save before evaluating tokens that are not part of every continuation. Of a model whose positions have several dimensions (M-RoPE), prompts with
// spans are refused: an image's positions there are not as many as its tokens.
func (s *Session) Save(ctx context.Context, prompt kv.Prompt, sequence int) (db.PutResult, error) {
	if err := s.begin(ctx, sequence); err != nil {
		return db.PutResult{}, err
	}
	prompt = ordered(prompt)
	n := s.cells.tokens(sequence)
	if n <= 0 {
		return db.PutResult{}, fmt.Errorf("%w: sequence %d is empty", ErrPositions, sequence)
	}
	l := s.known.line(sequence)
	if err := l.agrees(prompt, n); err != nil {
		return db.PutResult{}, err
	}
	if err := l.refuses(min(n, len(prompt.Tokens))); err != nil {
		return db.PutResult{}, err
	}
	if err := s.identity.checked(prompt); err != nil {
		return db.PutResult{}, err
	}
	way := &saving{cells: s.cells, form: s.form, known: s.known, deferred: s.deferred, model: s.model, put: s.o.Put, line: l}
	switch s.form.mode {
	case Opaque:
		return way.whole(ctx, prompt, n)
	case Hybrid:
		return way.hybrid(ctx, prompt, n)
	}
	return way.rows(ctx, prompt.Prefix(prompt.Clip(min(n, len(prompt.Tokens)))))
}
