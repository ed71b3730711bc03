package llamacpp

import (
	"math"

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
	values [sketchValues]float32
}

// sketched is the tensor that sketches are taken of: the last V of the first section that has layers.
func (lay *layout) sketched() int {
	section := baseSection
	if len(lay.format.Sections[section].Layers) == 0 {
		section = windowSection
	}
	last := 0
	for i, p := range lay.planes {
		if p.section == section {
			last = i // K and V of a layer lie side by side, V behind
		}
	}
	return last
}

// sketchOf takes sketches of rows, one each.
func sketchOf(t kv.Tensor, rows kv.TensorRows) []sketch {
	out := make([]sketch, 0, rows.Count())
	size, group := t.DType.GroupBytes(), t.DType.Group()
	half := t.Width / 2
	for _, p := range rows.Pieces {
		row, elem := p.Strides(t)
		for i := range p.Count {
			s := sketch{seen: true}
			for j := range s.values {
				at := half + j*(t.Width-half)/sketchValues
				if v := state.Value(t.DType, p.Mem[i*row+at/group*elem:][:size], at%group); v-v == 0 { // a number, and finite
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

// sketchesIn takes sketches of what a blob holds: those of the positions from first on, up to the first gap.
func (s *Session) sketchesIn(st *state.State) (first int, out []sketch) {
	i := s.lay.sketched()
	rows := st.Sections[s.lay.planes[i].section].Rows(s.lay.planes[i].layer, s.lay.planes[i].role)
	return rows.First, sketchOf(s.model.Descriptor().Tensors[i], rows)
}
