package state

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// ggml's numbers for the element types that kv knows.
var dtypes = map[int32]kv.DType{
	0:  kv.F32,
	1:  kv.F16,
	2:  kv.Q4_0,
	3:  kv.Q4_1,
	6:  kv.Q5_0,
	7:  kv.Q5_1,
	8:  kv.Q8_0,
	30: kv.BF16,
}

// DType is the element type of the rows.
func (t TensorFormat) DType() (kv.DType, error) {
	d, ok := dtypes[t.Type]
	if !ok {
		return 0, fmt.Errorf("element type %d of ggml is not known", t.Type)
	}
	return d, nil
}

// Width is the number of values in a row.
func (t TensorFormat) Width() int {
	d := dtypes[t.Type]
	if !d.Valid() {
		return 0
	}
	return t.RowBytes / d.GroupBytes() * d.Group()
}

// check reports whether the sizes fit the element type, and a rotation the row. A missing tensor fits.
func (t TensorFormat) check(rotation int) error {
	if t.RowBytes == 0 {
		return nil
	}
	d, err := t.DType()
	switch {
	case err != nil:
		return err
	case t.RowBytes%d.GroupBytes() != 0:
		return fmt.Errorf("a row of %s has %d bytes, not a multiple of %d", d, t.RowBytes, d.GroupBytes())
	case t.ElemBytes != 0 && (d.Group() != 1 || t.ElemBytes != d.GroupBytes()):
		return fmt.Errorf("an element of channel-major %s has %d bytes, expected %d", d, t.ElemBytes, d.GroupBytes())
	case rotation != 0 && t.Width()%rotation != 0:
		return fmt.Errorf("a row of %d values is rotated by a matrix of %d", t.Width(), rotation)
	}
	return nil
}

// Count is the number of cells.
func (s *Section) Count() int { return len(s.Pos) }

// Layers is the number of layers.
func (s *Section) Layers() int { return len(s.format.Layers) }

// Range returns the positions [first, end) that the cells hold, and whether none is missing in between. A section
// without cells holds [0, 0).
func (s *Section) Range() (first, end int, whole bool) {
	if len(s.Pos) == 0 {
		return 0, 0, true
	}
	first, end = int(slices.Min(s.Pos)), int(slices.Max(s.Pos))+1
	return first, end, end-first == len(s.Pos)
}

// Rows describes the memory of a layer's K or V, in position order, one row a token: the rows of the positions that
// [Section.Range] gives, or, where some are missing, of the positions before the first gap. A cache without V has none.
func (s *Section) Rows(layer int, role kv.Role) kv.TensorRows {
	cells := len(s.Pos)
	if cells == 0 {
		return kv.TensorRows{}
	}
	var mem []byte
	var rowStride, elemStride int
	switch {
	case role == kv.RoleK:
		mem, rowStride = s.k[layer], s.format.Layers[layer].K.RowBytes
	case s.format.Layers[layer].V.RowBytes == 0:
		return kv.TensorRows{}
	case s.format.Transposed:
		rowStride = s.format.Layers[layer].V.ElemBytes
		mem, elemStride = s.v[layer], rowStride*cells
	default:
		mem, rowStride = s.v[layer], s.format.Layers[layer].V.RowBytes
	}
	if s.order == nil {
		s.order = s.runs()
	}
	runs := s.order
	out := kv.TensorRows{First: int(s.Pos[runs[0].cell])}
	for _, r := range runs {
		out.Pieces = append(out.Pieces, kv.Piece{
			Mem: mem[r.cell*rowStride:], Count: r.count, RowStride: rowStride, ElemStride: elemStride,
		})
	}
	return out
}

// cells are those of all sections.
func (s *State) cells() []Cells {
	out := make([]Cells, len(s.Sections))
	for i := range s.Sections {
		out[i] = s.Sections[i].Cells
	}
	return out
}

// copyRows fills a state with the rows of another one that has the same cells and format.
func (s *State) copyRows(from *State) {
	for i := range s.Sections {
		to, from := &s.Sections[i], &from.Sections[i]
		for j := range to.k {
			copy(to.k[j], from.k[j])
		}
		for j := range to.v {
			copy(to.v[j], from.v[j])
		}
	}
}

// runs returns the runs in position order, up to the first missing position.
func (s *Section) runs() []run {
	order := make([]int, len(s.Pos))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(s.Pos[a]) - int(s.Pos[b]) })
	runs := []run{{order[0], 1}}
	for i := 1; i < len(order); i++ {
		c, last := order[i], &runs[len(runs)-1]
		if s.Pos[c] != s.Pos[order[i-1]]+1 {
			break
		}
		if c == last.cell+last.count {
			last.count++
		} else {
			runs = append(runs, run{c, 1})
		}
	}
	return runs
}

// Span is the cells of the positions [first, first+count), in order.
func Span(stream, first, count int) Cells {
	c := Cells{Stream: stream, Pos: make([]int32, count)}
	for i := range c.Pos {
		c.Pos[i] = int32(first + i)
	}
	return c
}

// Pack copies rows into memory of its own, one after the other, whatever their strides.
func Pack(t kv.Tensor, r kv.TensorRows) []byte {
	out := make([]byte, 0, r.Count()*t.RowBytes())
	size := t.DType.GroupBytes()
	elems := t.Width / t.DType.Group()
	for _, p := range r.Pieces {
		row, elem := p.Strides(t)
		for i := range p.Count {
			if elem == size && p.Heads <= 1 {
				out = append(out, p.Mem[i*row:][:t.RowBytes()]...)
				continue
			}
			for j := range elems {
				out = append(out, p.Mem[p.At(t, i, j):][:size]...)
			}
		}
	}
	return out
}
