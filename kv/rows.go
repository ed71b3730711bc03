package kv

import (
	"errors"
	"fmt"
	"math"
)

// ErrRows is returned when a caller's rows do not fit the tensors: memory too short, strides that overlap, rows
// missing. The message names the tensor.
var ErrRows = errors.New("kv: rows do not fit")

// Rows is a caller's memory for a range of positions: one entry for each tensor of the descriptor, in its order. It is
// read by a put and written by a restore, during the call only.
type Rows []TensorRows

// TensorRows is the memory of one tensor: the rows of the positions First, First+1, …, piece after piece. No pieces
// mean that the caller has, or wants, no rows of this tensor.
//
// A tensor of a StateAt group has one row, the state at position First.
type TensorRows struct {
	First  int
	Pieces []Piece
}

// Piece is Count rows in one stretch of the caller's memory. No layout forces a copy: paged runtimes give many pieces,
// channel-major V has an element stride larger than its row stride.
type Piece struct {
	Mem        []byte // starts at the first element of the first row
	Count      int    // rows
	RowStride  int    // bytes from one row to the next; 0: packed
	ElemStride int    // bytes from one element to the next; 0: packed. Block types are always packed
	// Heads splits each row into that many equal parts, HeadStride bytes apart: a runtime's tensor of shape (heads, tokens, values). RowStride is
	// the way from one row of a head to the next then, 0 if those are packed. 0 and 1 heads: the row is in one part.
	Heads, HeadStride int
}

// Count is the number of rows.
func (r TensorRows) Count() int {
	n := 0
	for _, p := range r.Pieces {
		n += p.Count
	}
	return n
}

// End is the position after the last row.
func (r TensorRows) End() int { return r.First + r.Count() }

// Packed describes count rows that lie one after the other in mem.
func Packed(first, count int, mem []byte) TensorRows {
	return TensorRows{First: first, Pieces: []Piece{{Mem: mem, Count: count}}}
}

// Slice returns the rows of the positions [start, end), which must be covered.
func (r TensorRows) Slice(t Tensor, start, end int) TensorRows {
	return r.SliceIn(nil, t, start, end)
}

// SliceIn is Slice whose pieces are appended to buf: it allocates nothing where they fit.
func (r TensorRows) SliceIn(buf []Piece, t Tensor, start, end int) TensorRows {
	out := TensorRows{First: start, Pieces: buf}
	pos := r.First
	for _, p := range r.Pieces {
		from, to := max(start, pos), min(end, pos+p.Count)
		if from < to {
			out.Pieces = append(out.Pieces, p.slice(t, from-pos, to-pos))
		}
		pos += p.Count
	}
	return out
}

// slice returns the rows [from, to) of the piece.
func (p Piece) slice(t Tensor, from, to int) Piece {
	stride, _ := p.Strides(t)
	p.Mem, p.Count = p.Mem[from*stride:], to-from
	return p
}

// Strides returns the row and element strides in bytes, with the packed defaults filled in. The element of a block
// type is its group.
func (p Piece) Strides(t Tensor) (row, elem int) {
	row, elem = p.RowStride, p.ElemStride
	if elem == 0 {
		elem = t.DType.GroupBytes()
	}
	if row == 0 {
		row = t.RowBytes() / max(p.Heads, 1)
	}
	return row, elem
}

// At is the offset in Mem of an element of a row. The element of a block type is its group.
func (p Piece) At(t Tensor, row, elem int) int {
	rowStride, elemStride := p.Strides(t)
	if p.Heads > 1 {
		each := t.Width / t.DType.Group() / p.Heads
		return row*rowStride + elem/each*p.HeadStride + elem%each*elemStride
	}
	return row*rowStride + elem*elemStride
}

// Validate checks the memory of r against t, so that no kernel reads or writes outside of it. The error wraps [ErrRows].
func (r TensorRows) Validate(t Tensor) error {
	if r.First < 0 || r.First > MaxTokens {
		return fmt.Errorf("%w: %s: first position %d", ErrRows, t, r.First)
	}
	end := r.First
	for i, p := range r.Pieces {
		if p.Count < 0 {
			return fmt.Errorf("%w: %s: piece %d has %d rows", ErrRows, t, i, p.Count)
		}
		if end > MaxTokens-p.Count {
			return fmt.Errorf("%w: %s: piece %d: %d rows from position %d, the last is %d", ErrRows, t, i, p.Count, end, MaxTokens-1)
		}
		end += p.Count
		if p.Count == 0 {
			continue
		}
		if t.Width == 0 { // a state of any length
			if p.Count != 1 || p.Heads != 0 {
				return fmt.Errorf("%w: %s: a state is one row without heads, piece %d has %d rows and %d heads", ErrRows, t, i, p.Count, p.Heads)
			}
			continue
		}
		if err := p.validate(t, i); err != nil {
			return err
		}
	}
	return nil
}

// validate checks the memory of the ith piece, which has rows, of a tensor that has a width.
func (p Piece) validate(t Tensor, i int) error {
	size, elems, heads := t.DType.GroupBytes(), t.Width/t.DType.Group(), max(p.Heads, 1)
	if p.Heads < 0 || elems%heads != 0 {
		return fmt.Errorf("%w: %s: piece %d has %d heads, a row has %d elements", ErrRows, t, i, p.Heads, elems)
	}
	elems /= heads
	row, elem := p.Strides(t)
	switch {
	case row < size || elem < size:
		return fmt.Errorf("%w: %s: piece %d has strides of %d and %d bytes, elements have %d", ErrRows, t, i, row, elem, size)
	case t.DType.Group() > 1 && elem != size:
		return fmt.Errorf("%w: %s: piece %d: %s rows are packed, element stride is %d", ErrRows, t, i, t.DType, elem)
	}
	const limit = math.MaxInt / 8 // keeps the products below from overflowing
	if row > limit/p.Count || elem > limit/elems || heads > 1 && (p.HeadStride < 0 || p.HeadStride > limit/heads) {
		return fmt.Errorf("%w: %s: piece %d: strides too large", ErrRows, t, i)
	}
	part := (elems-1)*elem + size       // of a row, in one head
	head := (p.Count-1)*row + part      // of all rows, in one head
	whole := (heads - 1) * p.HeadStride // from the first head to the last
	if heads == 1 {
		whole = 0
	}
	if p.Count > 1 && row < part && elem < (p.Count-1)*row+size {
		return fmt.Errorf("%w: %s: piece %d: rows of stride %d and elements of stride %d overlap", ErrRows, t, i, row, elem)
	}
	if heads > 1 && p.HeadStride < head && (p.HeadStride < part || row < whole+part) {
		return fmt.Errorf("%w: %s: piece %d: %d heads of stride %d and rows of stride %d overlap", ErrRows, t, i, heads, p.HeadStride, row)
	}
	if need := whole + head; len(p.Mem) < need {
		return fmt.Errorf("%w: %s: piece %d has %d bytes, its %d rows need %d", ErrRows, t, i, len(p.Mem), p.Count, need)
	}
	return nil
}

// Validate checks that there is an entry for each tensor of d and that each fits it.
func (r Rows) Validate(d *Descriptor) error {
	if len(r) != len(d.Tensors) {
		return fmt.Errorf("%w: %d entries for %d tensors", ErrRows, len(r), len(d.Tensors))
	}
	for i, t := range d.Tensors {
		if err := r[i].Validate(t); err != nil {
			return err
		}
		if d.Groups[t.Group].Kind == StateAt && r[i].Count() > 1 {
			return fmt.Errorf("%w: %s: a state is one row, not %d", ErrRows, t, r[i].Count())
		}
	}
	return nil
}
