package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
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
	n := s.tokens(sequence)
	if n <= 0 {
		return db.PutResult{}, fmt.Errorf("%w: sequence %d is empty", ErrPositions, sequence)
	}
	l := s.line(sequence)
	if err := l.agrees(prompt, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	if err := l.refuses(min(n, len(prompt.Tokens))); err != nil {
		return db.PutResult{}, err
	}
	if err := s.identified(prompt); err != nil {
		return db.PutResult{}, err
	}
	switch s.mode {
	case Opaque:
		return s.saveOpaque(ctx, l, prompt, sequence, n)
	case Hybrid:
		return s.saveHybrid(ctx, l, prompt, sequence, n)
	}
	return s.saveRows(ctx, l, prompt.Prefix(prompt.Clip(min(n, len(prompt.Tokens)))), sequence)
}

// saveRows stores the rows of a prompt that the sequence holds all of: those that are not stored yet.
func (s *Session) saveRows(ctx context.Context, l *lineage, prompt kv.Prompt, sequence int) (db.PutResult, error) {
	n := len(prompt.Tokens)
	stored, err := s.storedOf(ctx, prompt)
	if err != nil {
		return db.PutResult{}, err
	}
	var missing *db.NotStoredError // something went since it was found
	if stored == n && !l.captured.unsaved {
		result, err := s.model.Put(ctx, prompt, make(kv.Rows, len(s.lay.planes)), s.o.Put)
		if err == nil {
			l.rests(prompt)
		}
		if !errors.As(err, &missing) {
			return result, err
		}
	}
	if err := s.settled(l, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	from := s.lay.firstNeeded(prompt, stored, s.model.Descriptor().BlockTokens)
	if seen := len(l.sketches); seen > 0 && s.lay.window > 0 {
		from = min(from, seen-1) // whatever was evaluated again, this row was
	}
	if from > 0 {
		result, err := s.saveFrom(ctx, l, prompt, sequence, from)
		if !errors.As(err, &missing) {
			return result, err
		}
	}
	return s.saveFrom(ctx, l, prompt, sequence, 0)
}

// storedOf is how many tokens of a prompt are stored, such that the prompt can be restored from one token before its end on.
func (s *Session) storedOf(ctx context.Context, prompt kv.Prompt) (int, error) {
	n := len(prompt.Tokens)
	if n == 0 {
		return 0, nil
	}
	stored, _, err := s.model.Probe(ctx, prompt, db.MatchOptions{})
	if err == nil && stored == n && n > 1 && s.lay.window > 0 {
		var before int
		if before, _, err = s.model.Probe(ctx, prompt, db.MatchOptions{Limit: n - 1}); before < n-1 {
			stored = before
		}
	}
	return stored, err
}

// comparedBefore is how many rows before those that are stored are looked at, to see whether they are still what they were: all
// behind a shift are others.
const comparedBefore = 32

// firstNeeded is the first position whose rows a save wants to see: block by block, of what is not stored, and of the window
// before the end.
func (lay *layout) firstNeeded(prompt kv.Prompt, stored, blockTokens int) int {
	n := len(prompt.Tokens)
	if stored == 0 || n == 0 {
		return 0
	}
	from, _ := prompt.Block(prompt.BlockAt(min(stored, n-1), blockTokens), blockTokens)
	if lay.window > 0 {
		from = min(from, n-lay.window-1)
	}
	return max(0, from-comparedBefore)
}

// readFrom returns the state of a sequence, without the positions before from if they can be left out: where sequences share one
// buffer, an empty one is given the others for the length of the call.
func (s *Session) readFrom(sequence, from int) ([]byte, error) {
	if from == 0 || s.mode != Rows {
		return s.get(sequence, 0)
	}
	free, ok := s.freeSequence(sequence)
	if !ok {
		return s.get(sequence, 0)
	}
	s.lib.SequenceCopy(s.memory, int32(sequence), int32(free), int32(from), -1)
	blob, err := s.get(free, 0)
	if !s.clear(free) {
		return nil, fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrState, free)
	}
	return blob, err
}

func (s *Session) read(sequence, from int) (*state.State, error) {
	blob, err := s.readFrom(sequence, from)
	if err != nil {
		return nil, err
	}
	return s.parsed(blob)
}

func (s *Session) parse(sequence int) (*state.State, error) { return s.read(sequence, 0) }

func (s *Session) parsed(blob []byte) (*state.State, error) {
	st, err := s.lay.format.Parse(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return st, nil
}

// saveFrom stores the rows from a position on; those before must be stored.
func (s *Session) saveFrom(ctx context.Context, l *lineage, prompt kv.Prompt, sequence, from int) (db.PutResult, error) {
	n := len(prompt.Tokens)
	defer s.giveBack()
	st, err := s.read(sequence, from)
	if err != nil {
		return db.PutResult{}, err
	}
	base := &st.Sections[baseSection]
	first, end, whole := base.Range()
	switch {
	case first > from:
		return db.PutResult{}, fmt.Errorf("%w: from position %d on, sequence %d begins at %d", ErrPositions, from, sequence, first)
	case !whole:
		return db.PutResult{}, fmt.Errorf("%w: of the positions [%d, %d), sequence %d has %d", ErrPositions, first, end, sequence, base.Count())
	}
	if n > end && len(s.lay.format.Sections[baseSection].Layers) > 0 {
		n = prompt.Clip(end)
		prompt = prompt.Prefix(n)
	}
	if first == 0 {
		if err := s.inOrder(l, base, n, sequence); err != nil {
			return db.PutResult{}, err
		}
	}
	first, sketches := sketchesIn(s.lay.format, st)
	if err := l.same(first, sketches, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	if from > 0 && s.lay.window > 0 && l.again(first, sketches, n) == 0 { // the first row that was evaluated again lies before
		return s.saveFrom(ctx, l, prompt, sequence, 0)
	}
	if err := s.whole(l, first, sketches, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	result, err := s.put(ctx, l, prompt, s.lay.rows(st))
	if err != nil {
		return result, err
	}
	l.rests(prompt)
	l.see(first, sketches[:max(0, min(len(sketches), n-first))])
	if s.lay.window > 0 && n > 0 {
		// The last block goes on, and is then stored under another key: its rows are still needed.
		d := s.model.Descriptor()
		last := prompt.BlockAt(n-1, d.BlockTokens)
		start, end := prompt.Block(last, d.BlockTokens)
		if end == prompt.BlockCapacityEnd(last, d.BlockTokens) {
			start = end
		}
		l.captured.drop(start)
		l.captured.grow(s.lay, d, &st.Sections[windowSection], start, n)
		l.captured.unsaved = false
	}
	return result, nil
}

// put stores rows. Window rows that were captured, and behind which some are missing, are stored with the prefix that they end: a
// put has no gaps.
func (s *Session) put(ctx context.Context, l *lineage, prompt kv.Prompt, rows kv.Rows) (sum db.PutResult, err error) {
	planes := s.lay.windowPlanes()
	if len(planes) == 0 {
		return s.model.Put(ctx, prompt, rows, s.o.Put)
	}
	add := func(prompt kv.Prompt, rows kv.Rows) error {
		r, err := s.model.Put(ctx, prompt, rows, s.o.Put)
		sum = db.PutResult{Tokens: r.Tokens, Blocks: sum.Blocks + r.Blocks, Records: sum.Records + r.Records, Reused: sum.Reused + r.Reused, Bytes: sum.Bytes + r.Bytes}
		return err
	}
	now := rows[planes[0]]
	alone := 0 // up to here, stretches are stored by themselves: not to be stored again
	for _, x := range l.captured.stretches {
		joins := x.end >= now.First
		with := slices.Clone(rows)
		for i, t := range planes {
			with[t] = x.rows(i)
			if joins && x.end < now.End() {
				with[t].Pieces = append(slices.Clone(with[t].Pieces), rows[t].Slice(s.model.Descriptor().Tensors[t], x.end, now.End()).Pieces...)
			}
		}
		if joins {
			rows = with
			break
		}
		if err := add(prompt.Prefix(prompt.Clip(min(x.end, len(prompt.Tokens)))), with); err != nil {
			return sum, err
		}
		if x.end <= len(prompt.Tokens) {
			alone = x.end
		}
	}
	if err := add(prompt, rows); err != nil {
		return sum, err
	}
	l.captured.drop(alone)
	return sum, nil
}

func (s *Session) saveOpaque(ctx context.Context, l *lineage, prompt kv.Prompt, sequence, n int) (db.PutResult, error) {
	if s.manyDims && len(prompt.Spans) > 0 {
		return db.PutResult{}, fmt.Errorf("%w: the positions of a span are fewer than its tokens, so what sequence %d holds of the prompt is not known", ErrPositions, sequence)
	}
	if err := s.endsAt(prompt, sequence, n); err != nil {
		return db.PutResult{}, err
	}
	if err := l.seen(sequence); err != nil {
		return db.PutResult{}, err
	}
	if err := l.refuses(n + 1); err != nil { // what goes on behind a state sees all of its window
		return db.PutResult{}, err
	}
	if gone := s.windowGone(l, n, sequence); gone != nil {
		return db.PutResult{}, gone
	}
	if err := s.settled(l, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	defer s.giveBack()
	blob, err := s.get(sequence, 0)
	if err != nil {
		return db.PutResult{}, err
	}
	first, sketches := s.sketchesOfWhole(blob)
	if err := s.whole(l, first, sketches, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	result, err := s.putStates(ctx, l, prompt.Prefix(n), blob, func(blob []byte, n int) kv.Rows { return kv.Rows{kv.Packed(n, 1, blob)} })
	if err == nil {
		l.holds(prompt.Prefix(n))
		l.see(first, sketches)
	}
	return result, err
}
