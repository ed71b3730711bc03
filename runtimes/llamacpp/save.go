package llamacpp

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Save stores what the sequence holds of prompt. The cache must have been filled with exactly these tokens (with these
// spans and adapters) at the positions from 0 on: llama.cpp keeps no tokens, so nobody can check. It may hold more tokens
// than the prompt, or, before the prompt is evaluated to its end, fewer: then that much is stored.
//
// Do not save between shifting positions (llama_memory_seq_add) and the next llama_decode: the rows are not yet what
// their positions say.
//
// Of the window layers of a sliding-window model, the cache holds only the last rows. They are stored, so that the prompt
// can be restored at and shortly before its end; what [Session.Prefill] saw on the way is stored too, and makes every
// other position restorable. An Opaque state is stored at the sequence's last position only: save before evaluating
// tokens that are not part of every continuation. Of a model whose positions have several dimensions (M-RoPE), prompts with
// spans are refused: an image's positions there are not as many as its tokens.
func (s *Session) Save(ctx context.Context, prompt kv.Prompt, sequence int) (db.PutResult, error) {
	if ctx == nil {
		return db.PutResult{}, errNoContext
	}
	if err := s.check(sequence); err != nil {
		return db.PutResult{}, err
	}
	n := s.tokens(sequence)
	if n <= 0 {
		return db.PutResult{}, fmt.Errorf("%w: sequence %d is empty", ErrPositions, sequence)
	}
	if s.mode == Opaque {
		return s.saveOpaque(ctx, prompt, sequence, n)
	}
	blob, err := s.get(sequence, 0)
	if err != nil {
		return db.PutResult{}, err
	}
	st, err := s.lay.format.Parse(blob)
	if err != nil {
		return db.PutResult{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	first, end, whole := st.Sections[baseSection].Range()
	switch {
	case first > 0:
		return db.PutResult{}, fmt.Errorf("%w: sequence %d begins at position %d", ErrPositions, sequence, first)
	case !whole:
		return db.PutResult{}, fmt.Errorf("%w: of the positions [0, %d), sequence %d has %d", ErrPositions, end, sequence, st.Sections[baseSection].Count())
	}
	rows := s.lay.rows(st)
	if s.lay.window > 0 {
		s.withCaptured(rows, prompt, sequence)
	}
	// Rows may end only where a prefix may.
	end = prompt.Clip(min(end, len(prompt.Tokens)))
	if len(s.lay.format.Sections[baseSection].Layers) > 0 {
		prompt = prompt.Prefix(end)
	} else { // every layer has a window: tokens are stored as far as the cells go
		prompt = prompt.Prefix(prompt.Clip(min(n, len(prompt.Tokens))))
	}
	return s.model.Put(ctx, prompt, rows, s.o.Put)
}

func (s *Session) saveOpaque(ctx context.Context, prompt kv.Prompt, sequence, n int) (db.PutResult, error) {
	if s.manyDims && len(prompt.Spans) > 0 {
		return db.PutResult{}, fmt.Errorf("%w: the positions of a span are fewer than its tokens, so what sequence %d holds of the prompt is not known", ErrPositions, sequence)
	}
	if n > len(prompt.Tokens) || prompt.Clip(n) != n {
		return db.PutResult{}, fmt.Errorf("%w: the state of sequence %d is that after %d tokens, where no prefix of the prompt of %d tokens ends",
			ErrPositions, sequence, n, len(prompt.Tokens))
	}
	blob, err := s.get(sequence, 0)
	if err != nil {
		return db.PutResult{}, err
	}
	return s.model.Put(ctx, prompt.Prefix(n), kv.Rows{kv.Packed(n, 1, blob)}, s.o.Put)
}

// withCaptured puts the window rows that were captured of this prompt before those that the cache still holds.
func (s *Session) withCaptured(rows kv.Rows, prompt kv.Prompt, sequence int) {
	c := s.captures[sequence]
	for i, t := range s.lay.windowPlanes() {
		now := rows[t]
		if c == nil || !c.of(prompt) || c.end < now.First {
			return
		}
		tensor := s.model.Descriptor().Tensors[t]
		if c.end < now.End() {
			now = now.Slice(tensor, c.end, now.End())
		} else {
			now = kv.TensorRows{First: c.end}
		}
		rows[t] = kv.TensorRows{First: c.first, Pieces: append(append([]kv.Piece(nil), c.pieces[i]...), now.Pieces...)}
	}
}
