package portrait

import (
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Portrait is what is remembered of the rows of a few tokens: of each plane (a layer's K or V) its length as a vector, and some
// projections of it on vectors of +1 and -1. The mean square of a projection's change is the square of the length of the change: so
// few numbers tell how far two planes are from one another, wherever in the row they differ.
type Portrait struct {
	planes []Plane
	stride int // of all planes, every stride-th is in it
}

// Plane is what is remembered of a layer's K or V.
type Plane struct {
	name        string // not stored: it follows from the layout, as kind does
	kind        Kind
	norm        float32
	projections []float32
}

// Kind is what a plane is beside its neighbour.
type Kind uint8

const (
	Single Kind = iota // K without V, or all of a state
	Keys               // and the next plane has the values of the same layer
	Values
	Memory          // a state of recurrent layers, beside rows
	Coarse Kind = 4 // with one of the others: a cache of 4 or 5 bits
)

// Bounds of a portrait.
const (
	MaxBytes       = 6 << 10
	maxProjections = 16
)

// Rows are the values of a plane. Name is for people.
type Rows struct {
	Name   string
	Kind   Kind
	Values []float32
}

// Of makes a portrait of a blob: its planes where the layout is known, else all of it, read as the float32 that recurrent layers
// keep; and of what follows it in a hybrid's.
func Of(f state.Format, blob, recurrent []byte) Portrait {
	var all []Rows
	if st, err := f.Parse(blob); err == nil && len(f.Sections) > 0 {
		all = RowsOf(f, st)
	}
	if len(all) == 0 {
		all = append(all, Rows{"the state", Single, state.Values(kv.F32, blob)})
	}
	if len(recurrent) > 0 {
		all = append(all, Rows{"the recurrent state", Memory, state.Values(kv.F32, recurrent)})
	}
	return From(all)
}

// RowsOf are the planes of a state whose layout is known.
func RowsOf(f state.Format, st *state.State) (out []Rows) {
	for i := range st.Sections {
		for l, layer := range f.Sections[i].Layers {
			for _, x := range []struct {
				role   kv.Role
				format state.TensorFormat
			}{{kv.RoleK, layer.K}, {kv.RoleV, layer.V}} {
				d, err := x.format.DType()
				if err != nil || x.format.RowBytes == 0 {
					continue
				}
				kind := Single
				switch {
				case x.role == kv.RoleV:
					kind = Values
				case layer.V.RowBytes > 0:
					kind = Keys
				}
				if d >= kv.Q4_0 {
					kind |= Coarse
				}
				t := kv.Tensor{Layer: l, Role: x.role, DType: d, Width: x.format.Width(), Group: i}
				out = append(out, Rows{fmt.Sprintf("%s of layer %d of section %d", x.role, l, i), kind, state.Values(d, state.Pack(t, st.Sections[i].Rows(l, x.role)))})
			}
		}
	}
	return out
}

// From makes a portrait of planes. Of very many it takes every n-th. That of no planes is like none.
func From(all []Rows) Portrait {
	if len(all) == 0 {
		return Portrait{}
	}
	s := Portrait{stride: 1 + (len(all)-1)/(MaxBytes/8)}
	if s.stride > 1 {
		s.stride |= 1 // so that keys and values are in it
	}
	kept := 1 + (len(all)-1)/s.stride
	m := min(maxProjections, MaxBytes/(4*kept)-1)
	for i := 0; i < len(all); i += s.stride {
		p := project(uint64(i), all[i].Values, m)
		p.name, p.kind = all[i].Name, all[i].Kind
		if s.stride > 1 {
			p.kind &= Coarse // Single: its neighbour may be missing
		}
		s.planes = append(s.planes, p)
	}
	return s
}

func project(plane uint64, values []float32, m int) Plane {
	var sums [maxProjections]float64
	square := 0.0
	for i, v := range values {
		x := float64(v)
		if math.IsNaN(x) || math.Abs(x) > 1e30 { // of a state that is not understood: no number at all
			continue
		}
		square += x * x
		// The signs are the bits of a mixed counter (splitmix64): the same in every process and release.
		z := (plane<<40 + uint64(i) + 1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		bits := math.Float64bits(x)
		for j := range sums { // x or -x, without a branch: nobody can predict it
			sums[j] += math.Float64frombits(bits ^ z>>j<<63)
		}
	}
	p := Plane{norm: float32(math.Sqrt(square)), projections: make([]float32, m)}
	for j, sum := range sums[:m] {
		p.projections[j] = float32(sum)
	}
	return p
}
