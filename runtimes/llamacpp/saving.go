package llamacpp

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
)

// saving is one save of what a sequence holds.
type saving struct {
	cells    *cells
	form     *form
	known    *known
	deferred *deferred
	model    *db.Model
	put      db.PutOptions // Options.Put

	line *lineage // of the sequence
}

// rows stores the rows of a prompt that the sequence holds all of: those that are not stored yet.
func (s *saving) rows(ctx context.Context, prompt kv.Prompt) (db.PutResult, error) {
	n := len(prompt.Tokens)
	stored, err := s.stored(ctx, prompt)
	if err != nil {
		return db.PutResult{}, err
	}
	var missing *db.NotStoredError // something went since it was found
	if stored == n && !s.line.captured.Unsaved {
		result, err := s.model.Put(ctx, prompt, make(kv.Rows, len(s.form.lay.Planes)), s.put)
		if err == nil {
			s.line.rests(prompt)
		}
		if !errors.As(err, &missing) {
			return result, err
		}
	}
	if err := s.deferred.settled(s.line, n); err != nil {
		return db.PutResult{}, err
	}
	from := s.form.lay.FirstNeeded(prompt, stored, s.model.Descriptor().BlockTokens)
	if seen := len(s.line.rows); seen > 0 && s.form.lay.Window > 0 {
		from = min(from, seen-1) // whatever was evaluated again, this row was
	}
	if from > 0 {
		result, err := s.from(ctx, prompt, from)
		if !errors.As(err, &missing) {
			return result, err
		}
	}
	return s.from(ctx, prompt, 0)
}

// stored is how many tokens of a prompt are stored, such that the prompt can be restored from one token before its end on.
func (s *saving) stored(ctx context.Context, prompt kv.Prompt) (int, error) {
	n := len(prompt.Tokens)
	if n == 0 {
		return 0, nil
	}
	stored, _, err := s.model.Probe(ctx, prompt, db.MatchOptions{})
	if err == nil && stored == n && n > 1 && s.form.lay.Window > 0 {
		var before int
		if before, _, err = s.model.Probe(ctx, prompt, db.MatchOptions{Limit: n - 1}); before < n-1 {
			stored = before
		}
	}
	return stored, err
}

// from stores the rows from a position on; those before must be stored.
func (s *saving) from(ctx context.Context, prompt kv.Prompt, from int) (db.PutResult, error) {
	n, l, lay := len(prompt.Tokens), s.line, s.form.lay
	defer s.cells.giveBack()
	blob, err := s.cells.getFrom(l.sequence, from, s.form.cut())
	if err != nil {
		return db.PutResult{}, err
	}
	st, err := s.form.parse(blob)
	if err != nil {
		return db.PutResult{}, err
	}
	base := &st.Sections[layout.Base]
	first, end, whole := base.Range()
	switch {
	case first > from:
		return db.PutResult{}, fmt.Errorf("%w: from position %d on, sequence %d begins at %d", ErrPositions, from, l.sequence, first)
	case !whole:
		return db.PutResult{}, fmt.Errorf("%w: of the positions [%d, %d), sequence %d has %d", ErrPositions, first, end, l.sequence, base.Count())
	}
	if n > end && len(lay.Format.Sections[layout.Base].Layers) > 0 {
		n = prompt.Clip(end)
		prompt = prompt.Prefix(n)
	}
	if first == 0 && s.deferred.ownCells() { // else other sequences may have come and gone in between
		if err := l.inOrder(base, n); err != nil {
			return db.PutResult{}, err
		}
	}
	first, sketches := sample.Of(lay.Format, st)
	if err := l.same(first, sketches, n); err != nil {
		return db.PutResult{}, err
	}
	if from > 0 && lay.Window > 0 && l.rows.EvaluatedAgain(first, sketches, n) == 0 { // the first row that was evaluated again lies before
		return s.from(ctx, prompt, 0)
	}
	if err := s.known.whole(l, first, sketches, n); err != nil {
		return db.PutResult{}, err
	}
	result, err := s.putRows(ctx, prompt, lay.Rows(st))
	if err != nil {
		return result, err
	}
	l.rests(prompt)
	l.rows.See(first, sketches[:max(0, min(len(sketches), n-first))])
	if lay.Window > 0 && n > 0 {
		// The last block goes on, and is then stored under another key: its rows are still needed.
		d := s.model.Descriptor()
		last := prompt.BlockAt(n-1, d.BlockTokens)
		start, end := prompt.Block(last, d.BlockTokens)
		if end == prompt.BlockCapacityEnd(last, d.BlockTokens) {
			start = end
		}
		l.captured.Drop(start)
		l.captured.Grow(lay, d, &st.Sections[layout.Window], start, n)
		l.captured.Unsaved = false
	}
	return result, nil
}

// putRows stores rows. Window rows that were captured, and behind which some are missing, are stored with the prefix that they
// end: a put has no gaps.
func (s *saving) putRows(ctx context.Context, prompt kv.Prompt, rows kv.Rows) (db.PutResult, error) {
	planes := s.form.lay.WindowPlanes()
	if len(planes) == 0 {
		return s.model.Put(ctx, prompt, rows, s.put)
	}
	var sum db.PutResult
	alone := 0 // up to here, stretches are stored by themselves: not to be stored again
	for _, x := range s.line.captured.Stretches {
		with, joined := x.With(rows, planes, s.model.Descriptor())
		if joined {
			rows = with
			break
		}
		r, err := s.model.Put(ctx, prompt.Prefix(prompt.Clip(min(x.End, len(prompt.Tokens)))), with, s.put)
		if sum = added(sum, r); err != nil {
			return sum, err
		}
		if x.End <= len(prompt.Tokens) {
			alone = x.End
		}
	}
	r, err := s.model.Put(ctx, prompt, rows, s.put)
	if sum = added(sum, r); err != nil {
		return sum, err
	}
	s.line.captured.Drop(alone)
	return sum, nil
}

// added is what two puts of one save have done: the tokens are those of the last one.
func added(sum, r db.PutResult) db.PutResult {
	return db.PutResult{Tokens: r.Tokens, Blocks: sum.Blocks + r.Blocks, Records: sum.Records + r.Records, Reused: sum.Reused + r.Reused, Bytes: sum.Bytes + r.Bytes}
}
