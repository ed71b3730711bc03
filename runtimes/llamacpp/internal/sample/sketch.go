package sample

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// values is how many values of a row a sketch keeps.
const values = 16

// Sketch is a sample of the row of one position. It is taken of the last layer, where a row depends on all tokens before
// it, and of V, which a shift of positions moves but does not change. Where there is no V, it is taken of the second half
// of K's rows, which for latents is the half without a position.
type Sketch struct {
	seen   bool
	bits   uint64 // a hash of the row
	values [values]float32
}

// Of returns the sketches of what a state holds, from position first on up to the first gap. They are of the last V of the
// first section that has layers.
func Of(f state.Format, st *state.State) (first int, out []Sketch) {
	section := layout.Base
	if len(f.Sections[section].Layers) == 0 {
		section = layout.Window
	}
	layers := f.Sections[section].Layers
	last := len(layers) - 1
	role, row := lastRow(layers)
	t, err := layout.Tensor(last, role, row, section)
	if err != nil {
		return 0, nil
	}
	rows := st.Sections[section].Rows(last, role)
	return rows.First, sketches(t, rows)
}

// lastRow is the row of the last layer that a sketch samples: V, or K where there is no V.
func lastRow(layers []state.LayerFormat) (kv.Role, state.TensorFormat) {
	last := layers[len(layers)-1]
	if last.V.RowBytes == 0 {
		return kv.RoleK, last.K
	}
	return kv.RoleV, last.V
}

// sketches takes one of each row.
func sketches(t kv.Tensor, rows kv.TensorRows) []Sketch {
	out := make([]Sketch, 0, rows.Count())
	size, of, bytes := t.DType.GroupBytes(), t.DType.Group(), t.RowBytes()
	half := t.Width / 2
	for _, p := range rows.Pieces {
		row, elem := p.Strides(t)
		packed, each := p.Mem, row
		if elem != size { // a row is not in one piece
			packed, each = state.Pack(t, kv.TensorRows{Pieces: []kv.Piece{p}}), bytes
		}
		var group, within [values]int // where in a row, and where in the group
		for j := range group {
			at := half + j*(t.Width-half)/values
			group[j], within[j] = at/of*elem, at%of
		}
		for i := range p.Count {
			s := Sketch{seen: true, bits: xxhash.Sum64(packed[i*each:][:bytes])}
			for j := range s.values {
				if v := state.Value(t.DType, p.Mem[i*row+group[j]:][:size], within[j]); v-v == 0 { // a number, and finite
					s.values[j] = v
				}
			}
			out = append(out, s)
		}
	}
	return out
}

// distance is how far two rows are apart, relative to the longer of them: 0 for the same, about 1.4 for rows that have
// nothing to do with each other.
func (s *Sketch) distance(o *Sketch) float64 {
	var apart, a, b float64
	for i, x := range s.values {
		y := o.values[i]
		apart += sq(x - y)
		a += sq(x)
		b += sq(y)
	}
	if apart == 0 {
		return 0
	}
	return math.Sqrt(apart / max(a, b))
}

func sq(x float32) float64 { return float64(x) * float64(x) }
