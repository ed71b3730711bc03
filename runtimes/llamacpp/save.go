package llamacpp

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Save stores what the sequence holds of prompt. The cache must hold exactly these tokens, spans and adapters at the positions from
// 0 on, because llama.cpp keeps no tokens. If it holds more tokens, they are left out. If it holds fewer, that much is stored.
//
// Save refuses with ErrLineage what contradicts the session's knowledge, and stores nothing then. The session knows the tokens that
// it restored, evaluated, captured or saved in the sequence, and a sample of their rows. For all else the caller's word is taken.
// Of an Opaque state the session must have seen the first tokens, since nothing in the state tells more. A caller who changed the
// sequence without the session says so ([Session.Reset], [Session.Truncate]).
//
// Never save rows of shifted positions (llama_memory_seq_add), not behind any number of decodes either: they are approximations.
//
// llama.cpp copies rows between streams, and rotates the keys of shifted positions, in the next llama_decode only. So Save looks
// at rows that the session did not see come before and after it evaluates one token. That token goes into an empty sequence, or
// else behind the end of one, and is removed again. Rows that change by it were shifted, or copied without a word, and are
// refused with ErrLineage. A copy that Reset told of is stored. The logits of the last decode stay, if it was asked for those of
// one token.
//
// Save does not read what is stored already. Of a prompt that is stored as a whole it checks the tokens only. It reads only new
// rows if sequences share one buffer and one of them is empty, else the whole state.
//
// Of the window layers of a sliding-window model, the cache holds the last rows only. Save stores them, so that the prompt can be
// restored at and shortly before its end. It also stores what [Session.Prefill] saw on the way, which makes every other position
// restorable.
//
// An Opaque or Hybrid state is stored at the sequence's last position, with those that Prefill took on the way, and nowhere else.
// Save before you evaluate tokens that are not part of every continuation. If positions have several dimensions (M-RoPE), prompts
// with spans are refused: an image has fewer positions there than tokens.
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
