package window

import (
	"math"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Captured is the rows of one sequence's window layers that are kept until they are saved.
type Captured struct {
	Stretches []Stretch // in order, with gaps in between
	Bytes     int64
	Unsaved   bool
}

// Stretch is the window rows of the positions [First, End).
type Stretch struct {
	First, End int
	pieces     [][]kv.Piece // by window tensor
}

// Grow copies the rows that the section has of [from, to), beyond what was captured.
func (c *Captured) Grow(lay *layout.Layout, d kv.Descriptor, section *state.Section, from, to int) {
	planes := lay.WindowPlanes()
	first, end, _ := section.Range()
	if first, end = max(first, from), min(end, to); first >= end {
		return
	}
	if n := len(c.Stretches); n == 0 || first > c.Stretches[n-1].End {
		c.Stretches = append(c.Stretches, Stretch{first, first, make([][]kv.Piece, len(planes))})
	}
	last := &c.Stretches[len(c.Stretches)-1]
	if end <= last.End {
		return
	}
	for i, t := range planes {
		tensor := d.Tensors[t]
		mem := state.Pack(tensor, section.Rows(lay.Planes[t].Layer, lay.Planes[t].Role).Slice(tensor, last.End, end))
		c.Bytes += int64(len(mem))
		last.pieces[i] = append(last.pieces[i], kv.Piece{Mem: mem, Count: end - last.End})
	}
	last.End = end
	c.Unsaved = true
}

// End is the position behind the last captured row; 0 if there is none.
func (c *Captured) End() int {
	if n := len(c.Stretches); n > 0 {
		return c.Stretches[n-1].End
	}
	return 0
}

// Drop forgets the rows before a position.
func (c *Captured) Drop(before int) { c.keep(before, math.MaxInt) }

// Cut forgets the rows from a position on.
func (c *Captured) Cut(n int) { c.keep(0, n) }

// keep keeps the rows of the positions [from, to).
func (c *Captured) keep(from, to int) {
	if n := len(c.Stretches); n == 0 || c.Stretches[0].First >= from && c.Stretches[n-1].End <= to {
		return
	}
	c.Bytes = 0
	for i := range c.Stretches {
		c.Stretches[i].keep(from, to)
	}
	c.Stretches = slices.DeleteFunc(c.Stretches, func(x Stretch) bool { return x.First >= x.End })
	for _, x := range c.Stretches {
		for _, pieces := range x.pieces {
			for _, p := range pieces {
				c.Bytes += int64(len(p.Mem))
			}
		}
	}
	c.Unsaved = c.Unsaved && len(c.Stretches) > 0
}

// With returns rows of all tensors with those of the stretch in place of the window rows. Where the window rows go on
// behind the stretch without a gap, they follow it, and joined is true.
func (x *Stretch) With(rows kv.Rows, planes []int, d kv.Descriptor) (with kv.Rows, joined bool) {
	now := rows[planes[0]]
	with, joined = slices.Clone(rows), x.End >= now.First
	for i, t := range planes {
		with[t] = kv.TensorRows{First: x.First, Pieces: x.pieces[i]}
		if joined && x.End < now.End() {
			with[t].Pieces = append(slices.Clone(with[t].Pieces), rows[t].Slice(d.Tensors[t], x.End, now.End()).Pieces...)
		}
	}
	return with, joined
}

func (x *Stretch) keep(from, to int) {
	first, end := max(x.First, from), min(x.End, to)
	if first >= end {
		*x = Stretch{}
		return
	}
	for i, pieces := range x.pieces {
		var kept []kv.Piece
		at := x.First
		for _, p := range pieces { // packed, so that a row has as many bytes as the next
			row := len(p.Mem) / p.Count
			if a, b := max(first-at, 0), min(end-at, p.Count); a < b {
				kept = append(kept, kv.Piece{Mem: p.Mem[a*row : b*row], Count: b - a})
			}
			at += p.Count
		}
		x.pieces[i] = kept
	}
	x.First, x.End = first, end
}
