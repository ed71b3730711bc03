package hashed

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Load puts stored rows into a sequence, which must have none in the ranges, and returns how many leading tokens of p are stored.
func (r *Runtime) Load(ctx context.Context, p kv.Prompt, seq int, ranges []kv.Range) (n int, err error) {
	defer r.enter()()
	if err := r.fail(Load, ctx); err != nil {
		return 0, err
	}
	if err := r.check(seq); err != nil {
		return 0, err
	}
	end := 0
	for _, in := range ranges {
		if in.Start < end {
			return 0, fmt.Errorf("hashed: ranges %v: [%d, %d) begins before %d", ranges, in.Start, in.End, end)
		}
		end = max(in.Start, in.End)
		if i, j := find(r.seqs[seq], in); i < j {
			return 0, fmt.Errorf("hashed: load of [%d, %d) to sequence %d, which has a row at position %d", in.Start, in.End, seq, r.seqs[seq][i].Pos)
		}
	}
	m, err := r.model.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()

	var loaded [][]*cell
	total := 0
	for i := 0; i < len(ranges); i++ {
		if i == 0 {
			n, loaded, total = m.Tokens(), nil, 0
		}
		in := clip(ranges[i], n)
		if in.Len() == 0 {
			loaded = append(loaded, nil)
			continue
		}
		mem := make([]byte, in.Len()*r.o.RowBytes)
		got, err := m.RestoreRange(ctx, kv.Rows{kv.Packed(in.Start, in.Len(), mem)})
		if err != nil {
			return 0, err
		}
		if got.Tokens < n { // damage: what was read before lies behind it, perhaps
			i = -1
			continue
		}
		var cells []*cell
		for k := range in.Len() {
			stored := mem[k*r.o.RowBytes:][:r.o.RowBytes]
			row := Row(stored)
			if !bytes.Equal(stored, r.spread(row)) {
				return 0, fmt.Errorf("hashed: the stored row of position %d is no row: %x", in.Start+k, stored)
			}
			cells = append(cells, &cell{Seen{in.Start + k, row}, p.Tokens[in.Start+k], 1})
		}
		loaded, total = append(loaded, cells), total+in.Len()
	}
	n = m.Tokens()
	if free := r.o.Cells - r.used; total > free {
		return 0, fmt.Errorf("%w: %d rows, %d of %d cells are free", kv.ErrFull, total, free, r.o.Cells)
	}
	for i, cells := range loaded {
		r.insert(seq, ranges[i], cells)
	}
	r.used += total
	r.stats.Loads++
	r.stats.Loaded += total
	r.stats.MostCells = max(r.stats.MostCells, r.used)
	return n, nil
}

// Store puts the rows that the sequence has in the range into the store. It refuses rows of other tokens than the prompt's.
func (r *Runtime) Store(ctx context.Context, p kv.Prompt, seq int, in kv.Range) error {
	defer r.enter()()
	if err := r.fail(Store, ctx); err != nil {
		return err
	}
	if err := r.check(seq); err != nil {
		return err
	}
	if in.Start < 0 || in.End < in.Start || in.End > len(p.Tokens) {
		return fmt.Errorf("hashed: rows [%d, %d) of a prompt of %d tokens", in.Start, in.End, len(p.Tokens))
	}
	if in.Len() == 0 {
		return nil
	}
	p = p.Prefix(in.End)
	err := r.put(ctx, p, seq, in)
	if missing := (*db.NotStoredError)(nil); errors.As(err, &missing) && missing.Stored < in.Start {
		err = r.put(ctx, p, seq, kv.Range{Start: missing.Stored, End: in.End})
	}
	if err != nil {
		return err
	}
	r.stats.Stores++
	r.stats.Stored += in.Len()
	return nil
}

func (r *Runtime) put(ctx context.Context, p kv.Prompt, seq int, in kv.Range) error {
	i, j := find(r.seqs[seq], in)
	mem := make([]byte, 0, in.Len()*r.o.RowBytes)
	for k, c := range r.seqs[seq][i:j] {
		pos := in.Start + k
		if c.Pos != pos {
			return fmt.Errorf("hashed: sequence %d has no row at position %d", seq, pos)
		}
		if c.token != p.Tokens[pos] {
			return fmt.Errorf("hashed: the row at position %d of sequence %d is of token %d, the prompt has %d", pos, seq, c.token, p.Tokens[pos])
		}
		mem = append(mem, r.spread(c.Row)...)
	}
	if i+in.Len() != j {
		return fmt.Errorf("hashed: sequence %d has no row at position %d", seq, in.Start+j-i)
	}
	_, err := r.model.Put(ctx, p, kv.Rows{kv.Packed(in.Start, in.Len(), mem)}, db.PutOptions{})
	return err
}

// spread is a row as it is stored.
func (r *Runtime) spread(row Row) []byte { return bytes.Repeat(row[:], r.o.RowBytes/len(row)) }

// clip is the part of the range that lies before n.
func clip(in kv.Range, n int) kv.Range {
	in.Start = min(in.Start, n)
	in.End = max(in.Start, min(in.End, n))
	return in
}
