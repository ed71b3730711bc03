package llamacpp

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// sketchValues is how many values of a row a sketch keeps.
const sketchValues = 16

// sketch is a sample of the row of one position, by which rows are known again. It is taken of the last layer, where a row
// depends on all tokens before it, and of V, which a shift of positions moves but does not change; where there is no V, of
// the second half of K's rows, which for latents is the half without a position.
type sketch struct {
	seen   bool
	bits   uint64 // a hash of the row
	values [sketchValues]float32
}

// sketchOf takes sketches of rows, one each.
func sketchOf(t kv.Tensor, rows kv.TensorRows) []sketch {
	out := make([]sketch, 0, rows.Count())
	size, values, bytes := t.DType.GroupBytes(), t.DType.Group(), t.RowBytes()
	half := t.Width / 2
	for _, p := range rows.Pieces {
		row, elem := p.Strides(t)
		packed, each := p.Mem, row
		if elem != size { // a row is not in one piece
			packed, each = state.Pack(t, kv.TensorRows{Pieces: []kv.Piece{p}}), bytes
		}
		var group, within [sketchValues]int // where in a row, and where in the group
		for j := range group {
			at := half + j*(t.Width-half)/sketchValues
			group[j], within[j] = at/values*elem, at%values
		}
		for i := range p.Count {
			s := sketch{seen: true, bits: xxhash.Sum64(packed[i*each:][:bytes])}
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
func (s *sketch) distance(o *sketch) float64 {
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

// sketchesIn takes sketches of what a blob holds, of the last V of the first section that has layers: those of the positions from first on, up to the
// first gap.
func sketchesIn(f state.Format, st *state.State) (first int, out []sketch) {
	section := baseSection
	if len(f.Sections[section].Layers) == 0 {
		section = windowSection
	}
	layers := f.Sections[section].Layers
	last := len(layers) - 1
	role, row := kv.RoleV, layers[last].V
	if row.RowBytes == 0 {
		role, row = kv.RoleK, layers[last].K
	}
	t, err := tensorOf(last, role, row, section)
	if err != nil {
		return 0, nil
	}
	rows := st.Sections[section].Rows(last, role)
	return rows.First, sketchOf(t, rows)
}

// sketchesOfWhole takes sketches of a state that is not cut, where its layout is known, and what they are for: windows.
func (s *Session) sketchesOfWhole(blob []byte) (first int, out []sketch) {
	if s.window() == 0 || len(s.canaryFormat.Sections) == 0 {
		return 0, nil
	}
	st, err := s.canaryFormat.Parse(blob)
	if err != nil {
		return 0, nil
	}
	return sketchesIn(s.canaryFormat, st)
}
