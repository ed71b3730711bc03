package llamacpp

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
)

// whole stores the state of a sequence of n tokens that is not cut.
func (s *saving) whole(ctx context.Context, prompt kv.Prompt, n int) (db.PutResult, error) {
	l := s.line
	if s.form.manyDims && len(prompt.Spans) > 0 {
		return db.PutResult{}, fmt.Errorf("%w: the positions of a span are fewer than its tokens, so what sequence %d holds of the prompt is not known", ErrPositions, l.sequence)
	}
	if err := s.endsAt(prompt, n); err != nil {
		return db.PutResult{}, err
	}
	if err := l.seen(); err != nil {
		return db.PutResult{}, err
	}
	if err := l.refuses(n + 1); err != nil { // what goes on behind a state sees all of its window
		return db.PutResult{}, err
	}
	if gone := s.known.windowGone(l, n); gone != nil {
		return db.PutResult{}, gone
	}
	if err := s.deferred.settled(l, n); err != nil {
		return db.PutResult{}, err
	}
	defer s.cells.giveBack()
	blob, err := s.cells.get(l.sequence, 0)
	if err != nil {
		return db.PutResult{}, err
	}
	first, sketches := s.form.sketches(blob)
	if err := s.known.whole(l, first, sketches, n); err != nil {
		return db.PutResult{}, err
	}
	result, err := s.putStates(ctx, prompt.Prefix(n), blob, nil)
	if err == nil {
		l.holds(prompt.Prefix(n))
		l.rows.See(first, sketches)
	}
	return result, err
}

// hybrid stores the rows of a sequence of n tokens, the state after them, and those that Prefill took on the way.
func (s *saving) hybrid(ctx context.Context, prompt kv.Prompt, n int) (db.PutResult, error) {
	l := s.line
	if err := s.endsAt(prompt, n); err != nil {
		return db.PutResult{}, err
	}
	if l.shrunk {
		if err := l.seen(); err != nil {
			return db.PutResult{}, err
		}
	}
	if err := s.deferred.settled(l, n); err != nil {
		return db.PutResult{}, err
	}
	defer s.cells.giveBack()
	blob, err := s.cells.get(l.sequence, 0)
	if err != nil {
		return db.PutResult{}, err
	}
	size := s.form.lay.Recurrent.Size()
	if len(blob) < size {
		return db.PutResult{}, fmt.Errorf("%w: %d bytes, the recurrent part alone has %d", ErrState, len(blob), size)
	}
	part := blob[len(blob)-size:]
	if err := s.form.checkRecurrent(part, n); err != nil {
		return db.PutResult{}, err
	}
	st, err := s.form.parse(blob[:len(blob)-size])
	if err != nil {
		return db.PutResult{}, err
	}
	base := &st.Sections[layout.Base]
	if first, end, whole := base.Range(); first > 0 || !whole || end != n {
		return db.PutResult{}, fmt.Errorf("%w: of the positions [0, %d), sequence %d has %d, the last of them %d", ErrPositions, n, l.sequence, base.Count(), end-1)
	}
	if s.deferred.ownCells() { // else other sequences may have come and gone in between
		if err := l.inOrder(base, n); err != nil {
			return db.PutResult{}, err
		}
	}
	first, sketches := sample.Of(s.form.lay.Format, st)
	if err := l.same(first, sketches, n); err != nil {
		return db.PutResult{}, err
	}
	result, err := s.putStates(ctx, prompt.Prefix(n), part, s.form.lay.Rows(st))
	if err == nil {
		l.rests(prompt.Prefix(n))
		l.rows.See(first, sketches)
	}
	return result, err
}

// endsAt refuses a prompt of which a state after n tokens is none.
func (s *saving) endsAt(prompt kv.Prompt, n int) error {
	if n > len(prompt.Tokens) || prompt.Clip(n) != n {
		return fmt.Errorf("%w: the state of sequence %d is that after %d tokens, where no prefix of the prompt of %d tokens ends",
			ErrPositions, s.line.sequence, n, len(prompt.Tokens))
	}
	return nil
}

// putStates stores a prompt with the state after its last token, and before that the states that Prefill took on its way. rows are
// those of a hybrid, beside its state.
func (s *saving) putStates(ctx context.Context, prompt kv.Prompt, last []byte, rows kv.Rows) (db.PutResult, error) {
	o := s.put
	if o.KeepStates == 0 {
		o.KeepStates = keepStates
	}
	var sum db.PutResult
	put := func(part []byte, n int) error {
		r, err := s.model.Put(ctx, prompt.Prefix(n), append(rows[:len(rows):len(rows)], kv.Packed(n, 1, part)), o)
		sum.Tokens, sum.Reused = r.Tokens, r.Reused
		sum.Blocks += r.Blocks
		sum.Records += r.Records
		sum.Bytes += r.Bytes
		return err
	}
	for _, c := range s.line.states {
		if n := len(c.prompt.Tokens); n < len(prompt.Tokens) && c.of(prompt) {
			if err := put(c.state, n); err != nil {
				return sum, err
			}
		}
	}
	s.line.states = nil
	return sum, put(last, len(prompt.Tokens))
}
