package llamacpp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
)

// Load puts stored rows of the prompt into a sequence. It returns how many leading tokens of the prompt are stored, n: of each range,
// what lies before n was loaded. A range that begins at or behind n is no error. The sequence keeps its rows elsewhere, and must have none
// in the ranges (else ErrNotEmpty). If there is an error, nothing was loaded; kv.ErrFull says that there is no room.
//
// Rows of window layers are loaded for all positions, so that the sequence may be cut anywhere. Where they are missing, n is less.
func (r *Runtime) Load(ctx context.Context, p kv.Prompt, seq int, ranges []kv.Range) (n int, err error) {
	if ctx == nil {
		return 0, errNoContext
	}
	if err := r.able(seq); err != nil {
		return 0, err
	}
	p = ordered(p)
	if err := r.unchanged(ctx); err != nil {
		return 0, err
	}
	if err := r.identity.checked(p); err != nil {
		return 0, err
	}
	ranges = disjoint(ranges)
	for _, rg := range ranges {
		if r.held[seq].Any(rg) {
			return 0, fmt.Errorf("%w: sequence %d has rows in [%d, %d)", ErrNotEmpty, seq, rg.Start, rg.End)
		}
	}
	m, err := r.model.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	defer r.cells.giveBack()
	n = m.Tokens()
	loaded := 0
	defer func() { // what damage has cut off, or all
		if err != nil {
			n = 0
		}
		for _, rg := range ranges {
			if rg = (kv.Range{Start: max(rg.Start, n), End: min(rg.End, loaded)}); rg.Len() > 0 {
				r.remove(seq, rg)
			}
		}
	}()
	for _, rg := range ranges {
		for from := rg.Start; from < min(rg.End, n); {
			to := min(rg.End, n, from+r.form.lay.RowsAtOnce(piecesize.Bytes, r.model.Descriptor()))
			loaded = to
			got, err := r.load(ctx, m, p, seq, from, to)
			switch {
			case err != nil:
				return 0, err
			case got < to: // window rows are missing, or something is damaged
				n = got
				continue
			}
			r.held[seq].Set(from, p.Tokens[from:to]...)
			from = to
		}
	}
	return n, nil
}

// disjoint are ranges in order, without what they have in common.
func disjoint(ranges []kv.Range) []kv.Range {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b kv.Range) int { return cmp.Compare(a.Start, b.Start) })
	end := 0
	for i := range ranges {
		ranges[i].Start = max(ranges[i].Start, end)
		end = max(end, ranges[i].End)
	}
	return ranges
}

// load gives a sequence the stored rows of [from, to), and returns to. Less says how many leading tokens of the prompt are stored in truth.
func (r *Runtime) load(ctx context.Context, m *db.Match, p kv.Prompt, seq, from, to int) (int, error) {
	lay := r.form.lay
	if lay.Window > 0 { // a match gives the window before its end, and has no fewer tokens than these
		end := min(max(to, kv.OpeningTokens), m.Tokens())
		if from < end-lay.Window {
			return from, nil
		}
		var err error
		if m, err = r.model.Match(ctx, p, db.MatchOptions{Limit: end}); err != nil {
			return 0, err
		}
		defer m.Close()
		if n := m.Tokens(); n < to {
			return n, nil
		}
	}
	scratch := r.cells.scratch
	part := layout.Alone(from, to, scratch)
	_, rows, blob := lay.Build(r.cells.roomFor(lay.PartBytes(part)), part)
	got, err := m.RestoreRange(ctx, rows)
	if err != nil || got.Tokens < to {
		return got.Tokens, err
	}
	err = r.cells.set(scratch, blob)
	if errors.Is(err, errNotTaken) {
		return 0, fmt.Errorf("%w: rows [%d, %d) of sequence %d: %w", kv.ErrFull, from, to, seq, err)
	}
	if err != nil {
		return 0, err
	}
	r.share(scratch, seq, kv.Range{Start: from, End: to})
	return to, r.cells.empty(scratch)
}

// storedBytes bounds the rows of one put, which are in memory until it ends.
const storedBytes = 32 << 20

// Store puts the rows that a sequence has in the range into the store, as rows of the prompt. All rows of the range must be there (else
// ErrPositions). They must be of the prompt's tokens, as all that the sequence has before (else ErrLineage). Tokens before the range
// that the sequence does not have must be stored (else a *db.NotStoredError). Store does not look at what follows the range, but for a
// span in which it ends.
//
// What a row saw is the caller's word: where it was not all that lies before, the prompt says so by spans.
func (r *Runtime) Store(ctx context.Context, p kv.Prompt, seq int, rg kv.Range) error {
	if ctx == nil {
		return errNoContext
	}
	if err := r.able(seq); err != nil {
		return err
	}
	p = ordered(p)
	if err := p.Validate(); err != nil {
		return err
	}
	if err := r.unchanged(ctx); err != nil {
		return err
	}
	if err := r.identity.checked(p); err != nil {
		return err
	}
	switch {
	case rg.Len() == 0:
		return nil
	case r.off[seq] != nil:
		return r.off[seq]
	case rg.Start < 0 || rg.End > len(p.Tokens) || p.Clip(rg.End) < rg.End:
		return fmt.Errorf("%w: the rows [%d, %d) of a prompt of %d tokens, or it ends in a span", ErrPositions, rg.Start, rg.End, len(p.Tokens))
	case !r.held[seq].All(rg):
		return fmt.Errorf("%w: sequence %d does not have all rows of [%d, %d)", ErrPositions, seq, rg.Start, rg.End)
	}
	p = p.Prefix(rg.End)
	if at := r.held[seq].Parts(p.Tokens); at >= 0 {
		return &LineageError{seq, at, "its row there is of another token than the prompt's"}
	}
	defer r.cells.giveBack()
	for from := rg.Start; from < rg.End; {
		to := r.putEnd(p, from)
		err := r.store(ctx, p.Prefix(to), seq, from, to)
		var missing *db.NotStoredError
		if errors.As(err, &missing) && missing.Stored < from && r.held[seq].All(kv.Range{Start: missing.Stored, End: from}) {
			from = missing.Stored
			continue
		}
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}

// putEnd is where a put of rows from a position on ends: at the end of the prompt, or of a block if there are too many rows.
func (r *Runtime) putEnd(p kv.Prompt, from int) int {
	d := r.model.Descriptor()
	end := from + max(1, storedBytes/d.TokenBytes())
	if end >= len(p.Tokens) {
		return len(p.Tokens)
	}
	start, next := p.Block(p.BlockAt(end, d.BlockTokens), d.BlockTokens)
	if start = p.Clip(start); start > from {
		return start
	}
	for p.Clip(next) < next {
		next++
	}
	return next
}

// store stores the rows of [from, to), where the prompt ends.
func (r *Runtime) store(ctx context.Context, p kv.Prompt, seq, from, to int) error {
	step := r.form.lay.RowsAtOnce(storedBytes, r.model.Descriptor())
	var rows kv.Rows
	for at := from; at < to; at += step {
		part, err := r.export(seq, at, min(to, at+step), to-from > step)
		if err != nil {
			return err
		}
		if rows == nil {
			rows = part
			continue
		}
		for t := range rows {
			rows[t].Pieces = append(rows[t].Pieces, part[t].Pieces...)
		}
	}
	_, err := r.model.Put(ctx, p, rows, r.put)
	return err
}

// export returns the rows of the positions [start, end) of a sequence, all of which it has. They are valid until
// the next call; with alone, for good.
func (r *Runtime) export(sequence, start, end int, alone bool) (kv.Rows, error) {
	blob, err := r.cells.getRange(sequence, r.cells.scratch, start, end)
	if err != nil {
		return nil, err
	}
	if alone {
		blob = bytes.Clone(blob)
	}
	st, err := r.form.parse(blob)
	if err != nil {
		return nil, err
	}
	for i := range st.Sections {
		first, last, whole := st.Sections[i].Range()
		if len(r.form.lay.Format.Sections[i].Layers) > 0 && (!whole || first != start || last != end) {
			return nil, fmt.Errorf("%w: of the positions [%d, %d), sequence %d has %d in [%d, %d) of section %d", ErrPositions, start, end, sequence, st.Sections[i].Count(), first, last, i)
		}
	}
	return r.form.lay.Rows(st), nil
}
