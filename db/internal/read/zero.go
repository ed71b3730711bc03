package read

import (
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Zero clears the rows behind the first n tokens, and the states if n is 0. The error is segments.ErrMemory.
func Zero(d *kv.Descriptor, rows kv.Rows, n int) error {
	return segments.Callers(func() error {
		for i, t := range d.Tensors {
			if d.Groups[t.Group].Kind == kv.StateAt {
				if n == 0 {
					zero(t, rows[i], rows[i].First)
				}
				continue
			}
			zero(t, rows[i], n)
		}
		return nil
	})
}

// zero clears the rows of positions from on.
func zero(t kv.Tensor, rows kv.TensorRows, from int) {
	pos := rows.First
	for _, p := range rows.Pieces {
		if t.Width == 0 {
			clear(p.Mem)
			continue
		}
		_, elem := p.Strides(t)
		size, elems := t.DType.GroupBytes(), t.Width/t.DType.Group()
		for r := max(0, from-pos); r < p.Count; r++ {
			run := 1 // elements that lie one after the other
			if elem == size {
				run = elems / max(p.Heads, 1)
			}
			for e := 0; e < elems; e += run {
				clear(p.Mem[p.At(t, r, e):][:run*size])
			}
		}
		pos += p.Count
	}
}
