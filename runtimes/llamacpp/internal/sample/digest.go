package sample

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Digest is what is compared of a section: the bits of the first layer's K, which a shift changes, and some values of the
// last layer's V, which only other rows change.
type Digest struct {
	first int
	k, v  []Sketch
}

// Whole is the digest of a state whose layout is not known.
func Whole(blob []byte) []Digest {
	return []Digest{{k: []Sketch{{bits: xxhash.Sum64(blob)}}, v: make([]Sketch, 1)}}
}

// Digests are those of the sections of a state, of the positions below n.
func Digests(f state.Format, st *state.State, n int) (out []Digest, err error) {
	for i, section := range f.Sections {
		if len(section.Layers) == 0 {
			continue
		}
		k, err := below(&st.Sections[i], 0, kv.RoleK, section.Layers[0].K, n)
		if err != nil {
			return nil, err
		}
		role, row := lastRow(section.Layers)
		v, err := below(&st.Sections[i], len(section.Layers)-1, role, row, n)
		if err != nil {
			return nil, err
		}
		out = append(out, Digest{st.Sections[i].Rows(0, kv.RoleK).First, k, v})
	}
	return out, nil
}

// below are the sketches of a layer's rows of the positions below n.
func below(section *state.Section, layer int, role kv.Role, row state.TensorFormat, n int) ([]Sketch, error) {
	t, err := layout.Tensor(layer, role, row, 0)
	if err != nil {
		return nil, err
	}
	rows := section.Rows(layer, role)
	return sketches(t, rows.Slice(t, rows.First, max(rows.First, min(rows.End(), n)))), nil
}

// Changed compares two lists of digests. It returns the first position below n that is not what it was, n if there is none, and
// whether most values of a position are others: then its row was copied from elsewhere.
func Changed(before, after []Digest, n int) (at int, copied bool) {
	at = n
	for i := range min(len(before), len(after)) {
		from, other := before[i].changed(&after[i])
		at, copied = min(at, from), copied || other
	}
	return at, copied
}

func (d *Digest) changed(now *Digest) (at int, copied bool) {
	at = math.MaxInt
	for p := max(d.first, now.first); p < min(d.first+len(d.k), now.first+len(now.k)); p++ {
		a, b := p-d.first, p-now.first
		other := 0
		for i, x := range d.v[a].values {
			if x != now.v[b].values[i] {
				other++
			}
		}
		if d.k[a].bits != now.k[b].bits || other > 0 {
			at = min(at, p)
		}
		copied = copied || other > values*3/4 // of latents, a shift changes the part that has a position
	}
	return at, copied
}
