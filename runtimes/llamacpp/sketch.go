package llamacpp

import (
	"encoding/binary"
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
				if v := value(t.DType, p.Mem[i*row+at/group*elem:][:size], at%group); v-v == 0 { // a number, and finite
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

// value reads value i of a group of ggml's element types.
func value(d kv.DType, group []byte, i int) float32 {
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(group[at:]) }
	nibble := func(from int) byte { return group[from+i%16] >> (i / 16 * 4) & 15 }
	fifth := func(from int) byte { return byte(binary.LittleEndian.Uint32(group[from:])>>i) & 1 << 4 }
	switch d {
	case kv.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(group))
	case kv.F16:
		return half(u16(0))
	case kv.BF16:
		return math.Float32frombits(uint32(u16(0)) << 16)
	case kv.Q8_0:
		return half(u16(0)) * float32(int8(group[2+i]))
	case kv.Q4_0:
		return half(u16(0)) * (float32(nibble(2)) - 8)
	case kv.Q4_1:
		return half(u16(0))*float32(nibble(4)) + half(u16(2))
	case kv.Q5_0:
		return half(u16(0)) * (float32(nibble(6)|fifth(2)) - 16)
	case kv.Q5_1:
		return half(u16(0))*float32(nibble(8)|fifth(4)) + half(u16(2))
	}
	return 0
}

// half is the value of an IEEE half.
func half(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 0:
		f := float32(frac) / (1 << 24)
		if sign != 0 {
			f = -f
		}
		return f
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// sketchesIn takes sketches of what a blob holds: those of the positions from first on, up to the first gap.
func (s *Session) sketchesIn(st *state.State) (first int, out []sketch) {
	i := s.lay.sketched()
	rows := st.Sections[s.lay.planes[i].section].Rows(s.lay.planes[i].layer, s.lay.planes[i].role)
	return rows.First, sketchOf(s.model.Descriptor().Tensors[i], rows)
}
