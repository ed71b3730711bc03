package llamacpp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// portrait is what is remembered of the rows of a few tokens: of each plane (a layer's K or V) its length as a vector, and some
// projections of it on vectors of +1 and -1. The mean square of a projection's change is the square of the length of the change: so
// few numbers tell how far two planes are from one another, wherever in the row they differ.
type portrait struct {
	planes []planePortrait
	stride int // of all planes, every stride-th is in it
}

type planePortrait struct {
	name        string // not stored: it follows from the layout, as kind does
	kind        planeKind
	norm        float32
	projections []float32
}

// planeKind is what a plane is beside its neighbour.
type planeKind uint8

const (
	single planeKind = iota // K without V, or all of a state
	keys                    // and the next plane has the values of the same layer
	values
	memory               // a state of recurrent layers, beside rows
	coarse planeKind = 4 // with one of the others: a cache of 4 or 5 bits
)

// Bounds of a portrait.
const (
	maxPortraitBytes = 6 << 10
	maxProjections   = 16
)

// portraitOf makes a portrait of a blob: its planes where the layout is known, else all of it, read as the float32 that recurrent layers
// keep; and of what follows it in a hybrid's.
func portraitOf(f state.Format, blob, recurrent []byte) portrait {
	type rows struct {
		name   string
		kind   planeKind
		values []float32
	}
	var all []rows
	if st, err := f.Parse(blob); err == nil && len(f.Sections) > 0 {
		for i := range st.Sections {
			for l, layer := range f.Sections[i].Layers {
				for _, x := range []struct {
					role   kv.Role
					format state.TensorFormat
				}{{kv.RoleK, layer.K}, {kv.RoleV, layer.V}} {
					t, err := tensorOf(l, x.role, x.format, i)
					if err != nil || x.format.RowBytes == 0 {
						continue
					}
					kind := single
					switch {
					case x.role == kv.RoleV:
						kind = values
					case layer.V.RowBytes > 0:
						kind = keys
					}
					if t.DType >= kv.Q4_0 {
						kind |= coarse
					}
					packed := state.Pack(t, st.Sections[i].Rows(l, x.role))
					all = append(all, rows{fmt.Sprintf("%s of layer %d of section %d", x.role, l, i), kind, valuesOf(t.DType, packed)})
				}
			}
		}
	}
	if len(all) == 0 {
		all = append(all, rows{"the state", single, valuesOf(kv.F32, blob)})
	}
	if len(recurrent) > 0 {
		all = append(all, rows{"the recurrent state", memory, valuesOf(kv.F32, recurrent)})
	}
	s := portrait{stride: 1 + (len(all)-1)/(maxPortraitBytes/8)}
	if s.stride > 1 {
		s.stride |= 1 // so that keys and values are in it
	}
	kept := 1 + (len(all)-1)/s.stride
	m := min(maxProjections, maxPortraitBytes/(4*kept)-1)
	for i := 0; i < len(all); i += s.stride {
		p := project(uint64(i), all[i].values, m)
		p.name, p.kind = all[i].name, all[i].kind
		if s.stride > 1 {
			p.kind &= coarse // single: its neighbour may be missing
		}
		s.planes = append(s.planes, p)
	}
	return s
}

func project(plane uint64, values []float32, m int) planePortrait {
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
	p := planePortrait{norm: float32(math.Sqrt(square)), projections: make([]float32, m)}
	for j, sum := range sums[:m] {
		p.projections[j] = float32(sum)
	}
	return p
}

// distance is how far two portraits of one plane are apart, as a part of the longer one's length.
func (p planePortrait) distance(q planePortrait) float64 {
	long := float64(max(p.norm, q.norm))
	if long == 0 {
		return 0
	}
	sum := 0.0
	for j := range p.projections {
		d := float64(p.projections[j]) - float64(q.projections[j])
		sum += d * d
	}
	d := max(math.Sqrt(sum/float64(len(p.projections))), math.Abs(float64(p.norm)-float64(q.norm))) / long
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return d
}

// comparable reports whether two portraits are of the same planes.
func (s portrait) comparable(t portrait) bool {
	return len(s.planes) == len(t.planes) && s.stride == t.stride && len(s.planes) > 0 &&
		len(s.planes[0].projections) == len(t.planes[0].projections)
}

// What numerics explain, as a part of a plane's length: docs/llamacpp.md has what was measured. Kernels, flash attention and
// releases leave the first layer nearly as it is, and add up from layer to layer, in keys as in values.
const (
	mostOfPlane  = 0.35 // of the plane that differs most, whatever the model; where it is of 4 or 5 bits:
	mostOfCoarse = 0.6
	timesMost    = 2.5  // what rounding alone does in this model, if that is known, of the plane that differs most
	timesMean    = 2    // and of all on average; but at least:
	leastOfPlane = 0.03 // for devices of which nothing was measured
	mostOfLeast  = 0.06 // of the one that differs least, which is in the first layer
	mostOfKeys   = 0.05 // of keys, beyond what their values explain: both are made of the same input
	keysByValues = 2.5
)

// difference is how far a context is from what is stored.
type difference struct {
	times float64 // what numerics explain at most; above 1 it is another model
	worst float64 // of the plane that differs most
	plane string  // what decided
	looks string  // what it looks like
}

// noise is how far rounding alone moves the planes that do not know their position: the one that moves most, and all on average, as parts of
// their lengths. 0: not known.
type noise struct{ most, mean float64 }

// rounding takes the difference of two portraits for noise.
func (s portrait) rounding(t portrait) (n noise) {
	if !s.comparable(t) {
		return n
	}
	planes := 0
	for i, p := range t.planes {
		if kind := p.kind &^ coarse; kind == values || kind == memory {
			d := p.distance(s.planes[i])
			n.most = max(n.most, d)
			n.mean += d
			planes++
		}
	}
	n.mean /= float64(max(planes, 1))
	return n
}

// mostOf is how far a plane may be from the stored one.
func (p planePortrait) mostOf(n noise) float64 {
	most := mostOfPlane
	if p.kind&coarse != 0 {
		most = mostOfCoarse
	}
	if n.most > 0 && p.kind&^coarse != single {
		most = min(most, max(leastOfPlane, timesMost*n.most))
	}
	return most
}

// against compares what a context computes now with what is stored. If nothing showed what rounding does, and llama.cpp tells the same
// settings as then, the model is taken for one in which it does least: some releases compute the same bits whatever the batches are.
func (c canary) against(now canary) difference {
	n := c.noise
	if n.most == 0 && len(c.differs(now)) == 0 {
		n.most = math.SmallestNonzeroFloat64
	}
	return c.portrait.against(now.portrait, n)
}

// against compares what a context computes, t, with what is stored.
func (s portrait) against(t portrait, n noise) (d difference) {
	if !s.comparable(t) {
		return difference{times: math.Inf(1), worst: math.Inf(1), plane: "the number of planes", looks: "the state is made of other planes"}
	}
	take := func(times float64, plane, looks string) {
		if times > d.times {
			d.times, d.plane, d.looks = times, plane, looks
		}
	}
	const whole = "it looks like other weights, or a LoRA adapter"
	apart := make([]float64, len(t.planes))
	least, lengths := 0, 0.0
	for i, p := range t.planes {
		q := s.planes[i]
		apart[i] = p.distance(q)
		d.worst = max(d.worst, apart[i])
		if apart[i] < apart[least] {
			least = i
		}
		lengths = max(lengths, math.Abs(float64(p.norm)-float64(q.norm))/float64(max(p.norm, q.norm, math.SmallestNonzeroFloat32)))
		take(apart[i]/p.mostOf(n), p.name, whole)
	}
	for i, p := range t.planes {
		if p.kind&^coarse == keys && i+1 < len(apart) {
			take((apart[i]-keysByValues*apart[i+1])/mostOfKeys, p.name, "keys differ and their values do not: it looks like other positions (RoPE frequency base or scale, YaRN), or a LoRA adapter")
		}
	}
	if n.mean > 0 {
		take(s.rounding(t).mean/max(leastOfPlane, timesMean*n.mean), "all layers' V", whole)
	}
	if apart[least] > mostOfLeast {
		looks := "all rows differ: " + whole
		if lengths <= mostOfLeast {
			looks = "all rows differ and have their lengths: it looks like a cache that is rotated on one side only (LLAMA_ATTN_ROT_DISABLE, Options.Rotated)"
		}
		take(max(d.times, apart[least]/mostOfLeast)+1, t.planes[least].name, looks)
		d.times--
	}
	return d
}

// append encodes s: u16 stride, planes and projections, then for each plane its length and its projections as f32, little-endian.
func (s portrait) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(s.stride))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.planes)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.planes[0].projections)))
	for _, p := range s.planes {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(p.norm))
		for _, x := range p.projections {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

func decodePortrait(b []byte) (s portrait, ok bool) {
	if len(b) < 6 {
		return s, false
	}
	s.stride = int(binary.LittleEndian.Uint16(b))
	n, m := int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint16(b[4:]))
	if b = b[6:]; n == 0 || m == 0 || len(b) != 4*n*(1+m) {
		return s, false
	}
	next := func() (x float32) {
		x = math.Float32frombits(binary.LittleEndian.Uint32(b))
		b = b[4:]
		return x
	}
	for range n {
		p := planePortrait{norm: next()}
		for range m {
			p.projections = append(p.projections, next())
		}
		s.planes = append(s.planes, p)
	}
	return s, true
}

// valuesOf reads packed rows of an element type.
func valuesOf(d kv.DType, b []byte) []float32 {
	out := make([]float32, 0, len(b)/d.GroupBytes()*d.Group())
	for ; len(b) >= d.GroupBytes(); b = b[d.GroupBytes():] {
		for i := range d.Group() {
			out = append(out, value(d, b, i))
		}
	}
	return out
}
