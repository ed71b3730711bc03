package inplace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Load puts rows into a sequence, which has none in the ranges, and returns how many leading tokens of the prompt the store has. Rows that
// another process left in the ring, in whole turns, are taken from there; all else is restored from the store to where it will be read.
func (r *Runtime) Load(ctx context.Context, p kv.Prompt, seq int, ranges []kv.Range) (n int, err error) {
	if err := r.check(seq); err != nil {
		return 0, err
	}
	end := 0
	for _, in := range ranges {
		if in.Start < end {
			return 0, fmt.Errorf("inplace: ranges %v: [%d, %d) begins before %d", ranges, in.Start, in.End, end)
		}
		end = max(in.Start, in.End)
		if err := r.empty(seq, in); err != nil {
			return 0, err
		}
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m, err := r.model.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for {
		n = m.Tokens()
		l := &loading{r: r, p: p, cells: map[int]uint32{}}
		err := l.load(ctx, m, clip(ranges, n))
		if err != nil || m.Tokens() < n {
			l.undo()
			if err != nil {
				return 0, err
			}
			continue // damage: the match has become shorter
		}
		l.keep(seq)
		return n, nil
	}
}

// clip are the parts of ranges that lie before n.
func clip(ranges []kv.Range, n int) (out []kv.Range) {
	for _, in := range ranges {
		if in.End = min(in.End, n); in.Len() > 0 {
			out = append(out, in)
		}
	}
	return out
}

// loading is rows on their way to a sequence.
type loading struct {
	r        *Runtime
	p        kv.Prompt
	ranges   []kv.Range
	cells    map[int]uint32 // by position
	resident []*Turn        // pinned: all their rows are wanted
	taken    []uint32       // of turns of which only some are
	claimed  []uint32
	missing  []kv.Range // what claimed is for, in order
}

func (l *loading) load(ctx context.Context, m *db.Match, ranges []kv.Range) error {
	l.ranges = ranges
	l.find(ranges, m.Tokens())
	rows := 0
	for _, in := range ranges {
		for pos := in.Start; pos < in.End; pos++ {
			if _, have := l.cells[pos]; have {
				continue
			}
			if n := len(l.missing); n > 0 && l.missing[n-1].End == pos {
				l.missing[n-1].End++
			} else {
				l.missing = append(l.missing, kv.Range{Start: pos, End: pos + 1})
			}
			rows++
		}
	}
	var err error
	if l.claimed, err = l.r.ring.Claim(rows); err != nil {
		return err
	}
	at, tokens := l.claimed, m.Tokens()
	for _, in := range l.missing {
		cells := at[:in.Len()]
		at = at[in.Len():]
		for i, c := range cells {
			l.cells[in.Start+i] = c
		}
		got, err := m.RestoreRange(ctx, l.r.show(in.Start, cells))
		if err != nil {
			return err
		}
		if got.Tokens < tokens {
			return nil
		}
	}
	return nil
}

// find takes the rows that are wanted from turns of the ring that are of this prompt and nobody's.
func (l *loading) find(ranges []kv.Range, n int) {
	var turns []*Turn
	for t := range l.r.ring.Turns() {
		if l.r.whole[t.Cells[0]] != t && overlap(t, ranges) && t.End() <= n {
			turns = append(turns, t)
		}
	}
	slices.SortStableFunc(turns, func(a, b *Turn) int { return a.End() - b.End() })
	ends := make([]int, len(turns))
	for i, t := range turns {
		ends[i] = t.End()
	}
	last := 0
	for i, key := range keys(l.p, ends) {
		t := turns[i]
		if t.First < last || t.Key != key || !l.r.ring.Pin(t) {
			continue
		}
		last = t.End()
		var wanted, rest []uint32
		for i, c := range t.Cells {
			if pos := t.First + i; within(pos, ranges) {
				l.cells[pos] = c
				wanted = append(wanted, c)
			} else {
				rest = append(rest, c)
			}
		}
		if len(rest) == 0 {
			l.resident = append(l.resident, t)
			continue
		}
		l.r.ring.Dissolve(t) // it becomes a turn of the rows that are wanted
		l.r.ring.Release(rest)
		l.taken = append(l.taken, wanted...)
	}
}

func within(pos int, ranges []kv.Range) bool {
	for _, in := range ranges {
		if pos >= in.Start && pos < in.End {
			return true
		}
	}
	return false
}

func overlap(t *Turn, ranges []kv.Range) bool {
	for _, in := range ranges {
		if t.First < in.End && t.End() > in.Start {
			return true
		}
	}
	return false
}

func (l *loading) undo() {
	for _, t := range l.resident {
		l.r.ring.Unpin(t)
	}
	l.r.ring.Release(slices.Concat(l.claimed, l.taken))
}

// keep gives the rows to a sequence, and makes turns of those that are not of one.
func (l *loading) keep(seq int) {
	for _, t := range l.resident {
		for _, c := range t.Cells {
			l.r.whole[c] = t
		}
		l.r.stats.Resident += len(t.Cells)
	}
	l.r.stats.Resident += len(l.taken)
	l.r.stats.Restored += len(l.claimed)
	for _, pos := range slices.Sorted(maps.Keys(l.cells)) {
		l.r.give(seq, pos, l.cells[pos])
	}
	for _, in := range l.ranges {
		l.r.seal(l.p, seq, in)
	}
}

// seal makes turns of the rows in the range that are of none: each run of positions becomes one.
func (r *Runtime) seal(p kv.Prompt, seq int, in kv.Range) {
	ends := make([]int, in.Len())
	for i := range ends {
		ends[i] = in.Start + i + 1
	}
	var run []uint32
	for i, key := range keys(p, ends) {
		c, _ := r.seqs[seq].Row(in.Start + i)
		r.keys[c] = key
		if r.whole[c] == nil {
			run = append(run, uint32(c))
			continue
		}
		r.commit(in.Start+i-len(run), run)
		run = nil
	}
	r.commit(in.End-len(run), run)
}

// Store puts the rows that the sequence has in the range into the store, and makes turns of them that the next process finds in the ring.
func (r *Runtime) Store(ctx context.Context, p kv.Prompt, seq int, in kv.Range) error {
	if err := r.check(seq); err != nil {
		return err
	}
	if in.Start < 0 || in.End < in.Start || in.End > len(p.Tokens) {
		return fmt.Errorf("inplace: rows [%d, %d) of a prompt of %d tokens", in.Start, in.End, len(p.Tokens))
	}
	if err := ctx.Err(); err != nil || in.Len() == 0 {
		return err
	}
	p = p.Prefix(in.End)
	err := r.put(ctx, p, seq, in)
	if missing := (*db.NotStoredError)(nil); errors.As(err, &missing) && missing.Stored < in.Start {
		err = r.put(ctx, p, seq, kv.Range{Start: missing.Stored, End: in.End})
	}
	if err != nil {
		return err
	}
	r.stats.Stored += in.Len()

	r.seal(p, seq, in)
	return nil
}

func (r *Runtime) put(ctx context.Context, p kv.Prompt, seq int, in kv.Range) error {
	cells := make([]uint32, 0, in.Len())
	for pos := in.Start; pos < in.End; pos++ {
		cell, have := r.seqs[seq].Row(pos)
		if !have {
			return fmt.Errorf("inplace: sequence %d has no row at position %d", seq, pos)
		}
		cells = append(cells, uint32(cell))
	}
	_, err := r.model.Put(ctx, p, r.show(in.Start, cells), db.PutOptions{Codec: r.o.Codec})
	return err
}

// show tells the store where rows lie: in the planes, cell after cell.
func (r *Runtime) show(first int, cells []uint32) kv.Rows {
	var rows kv.Rows
	for l := range r.tiny.Layers {
		for _, plane := range [][]byte{r.ring.K(l), r.ring.V(l)} {
			t := kv.TensorRows{First: first}
			for i := 0; i < len(cells); {
				n := 1
				for i+n < len(cells) && cells[i+n] == cells[i]+uint32(n) {
					n++
				}
				from := int(cells[i]) * r.cache.RowBytes
				t.Pieces = append(t.Pieces, kv.Piece{Mem: plane[from : from+n*r.cache.RowBytes], Count: n})
				i += n
			}
			rows = append(rows, t)
		}
	}
	return rows
}
