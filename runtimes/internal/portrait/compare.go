package portrait

import "math"

// distance is how far two portraits of one plane are apart, as a part of the longer one's length.
func (p Plane) distance(q Plane) float64 {
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
func (s Portrait) comparable(t Portrait) bool {
	return len(s.planes) == len(t.planes) && s.stride == t.stride && len(s.planes) > 0 &&
		len(s.planes[0].projections) == len(t.planes[0].projections)
}

// What numerics explain, as a part of a plane's length: docs/llamacpp-checks.md has what was measured. Kernels, flash attention and
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

// Difference is how far a context is from what is stored.
type Difference struct {
	Times float64 // what numerics explain at most; above 1 it is another model
	Worst float64 // of the plane that differs most
	Plane string  // what decided
	Looks string  // what it looks like
}

// Noise is how far rounding alone moves the planes that do not know their position: the one that moves most, and all on average, as parts of
// their lengths. 0: not known.
type Noise struct{ Most, Mean float64 }

// Rounding takes the difference of two portraits for noise.
func (s Portrait) Rounding(t Portrait) (n Noise) {
	if !s.comparable(t) {
		return n
	}
	planes := 0
	for i, p := range t.planes {
		if kind := p.kind &^ Coarse; kind == Values || kind == Memory {
			d := p.distance(s.planes[i])
			n.Most = max(n.Most, d)
			n.Mean += d
			planes++
		}
	}
	n.Mean /= float64(max(planes, 1))
	return n
}

// mostOf is how far a plane may be from the stored one.
func (p Plane) mostOf(n Noise) float64 {
	most := mostOfPlane
	if p.kind&Coarse != 0 {
		most = mostOfCoarse
	}
	if n.Most > 0 && p.kind&^Coarse != Single {
		most = min(most, max(leastOfPlane, timesMost*n.Most))
	}
	return most
}

// Against compares what a context computes, t, with what is stored.
func (s Portrait) Against(t Portrait, n Noise) (d Difference) {
	if !s.comparable(t) {
		return Difference{Times: math.Inf(1), Worst: math.Inf(1), Plane: "the number of planes", Looks: "the state is made of other planes"}
	}
	take := func(times float64, plane, looks string) {
		if times > d.Times {
			d.Times, d.Plane, d.Looks = times, plane, looks
		}
	}
	const whole = "it looks like other weights, or a LoRA adapter"
	apart := make([]float64, len(t.planes))
	least, lengths := 0, 0.0
	for i, p := range t.planes {
		q := s.planes[i]
		apart[i] = p.distance(q)
		d.Worst = max(d.Worst, apart[i])
		if apart[i] < apart[least] {
			least = i
		}
		lengths = max(lengths, math.Abs(float64(p.norm)-float64(q.norm))/float64(max(p.norm, q.norm, math.SmallestNonzeroFloat32)))
		take(apart[i]/p.mostOf(n), p.name, whole)
	}
	for i, p := range t.planes {
		if p.kind&^Coarse == Keys && i+1 < len(apart) {
			take((apart[i]-keysByValues*apart[i+1])/mostOfKeys, p.name, "keys differ and their values do not: it looks like other positions (RoPE frequency base or scale, YaRN), or a LoRA adapter")
		}
	}
	if n.Mean > 0 {
		take(s.Rounding(t).Mean/max(leastOfPlane, timesMean*n.Mean), "all layers' V", whole)
	}
	if apart[least] > mostOfLeast {
		looks := "all rows differ: " + whole
		if lengths <= mostOfLeast {
			looks = "all rows differ and have their lengths: it looks like a cache that is rotated on one side only (LLAMA_ATTN_ROT_DISABLE, Options.Rotated)"
		}
		take(max(d.Times, apart[least]/mostOfLeast)+1, t.planes[least].name, looks)
		d.Times--
	}
	return d
}
