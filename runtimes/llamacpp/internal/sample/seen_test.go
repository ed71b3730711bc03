package sample

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// format is that of one layer in f32.
var format = state.Format{Sections: []state.SectionFormat{{Streams: 1, Layers: []state.LayerFormat{
	{K: state.TensorFormat{RowBytes: 256}, V: state.TensorFormat{RowBytes: 256}},
}}}}

// stateOf is a state of rows that depend on their token alone, off by a part of their length.
func stateOf(tokens []int, off float64) *state.State {
	st, _ := format.Build(nil, 0, []state.Cells{state.Span(0, 0, len(tokens))})
	for role, more := range map[kv.Role]uint64{kv.RoleK: 0, kv.RoleV: 1} {
		for _, piece := range st.Sections[0].Rows(0, role).Pieces {
			for i := range piece.Count {
				row := rand.New(rand.NewPCG(uint64(tokens[i]), more))
				noise := rand.New(rand.NewPCG(uint64(i), 7))
				for at := 0; at < 256; at += 4 {
					x := row.NormFloat64() + off*noise.NormFloat64()
					binary.LittleEndian.PutUint32(piece.Mem[i*piece.RowStride+at:], math.Float32bits(float32(x)))
				}
			}
		}
	}
	return st
}

func sketchesOf(tokens []int, off float64) []Sketch {
	_, out := Of(format, stateOf(tokens, off))
	return out
}

// Rows that were evaluated once more are the same rows; those of other tokens are not, and a shift is named.
func TestContradicts(t *testing.T) {
	tokens := rand.Perm(100)[:40]
	shifted := append(append([]int{}, tokens[:10]...), tokens[13:]...)
	other := append(append([]int{}, tokens[:20]...), rand.Perm(100)[:20]...)
	for i := 20; i < 40; i++ {
		other[i] += 1000
	}
	var seen Seen
	seen.See(0, sketchesOf(tokens, 0))
	for _, x := range []struct {
		what string
		now  []Sketch
		n    int
		at   int // -1: it is the same
	}{
		{"the same", sketchesOf(tokens, 0), 40, -1},
		{"rounded", sketchesOf(tokens, 0.05), 40, -1},
		{"shifted by three", sketchesOf(shifted, 0), 40, 10},
		{"shifted behind what is asked for", sketchesOf(shifted, 0), 10, -1},
		{"of other tokens", sketchesOf(other, 0), 40, 20},
	} {
		got := seen.Contradicts(0, x.now, x.n)
		if (got != nil) != (x.at >= 0) || got != nil && got.At != x.at {
			t.Errorf("%s: %+v, expected position %d", x.what, got, x.at)
		}
	}
}

// What was evaluated once more is known by its bits, from behind the last row that kept them.
func TestEvaluatedAgain(t *testing.T) {
	tokens := rand.Perm(100)[:20]
	was, rounded := sketchesOf(tokens, 0), sketchesOf(tokens, 0.01)
	var seen Seen
	seen.See(0, was)
	if at := seen.EvaluatedAgain(0, was, 20); at != 20 {
		t.Errorf("rows that are as they were: from %d on", at)
	}
	mixed := append(append([]Sketch{}, was[:12]...), rounded[12:]...)
	if at := seen.EvaluatedAgain(0, mixed, 20); at != 12 {
		t.Errorf("rows from 12 on: from %d on", at)
	}
	seen.Cut(12)
	if at := seen.EvaluatedAgain(0, mixed, 20); at != 20 {
		t.Errorf("rows of which nothing is known any more: from %d on", at)
	}
}

// A shift changes the keys alone, a copy the values, too.
func TestChanged(t *testing.T) {
	tokens := rand.Perm(100)[:20]
	digests := func(st *state.State) []Digest {
		out, err := Digests(format, st, 20)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := digests(stateOf(tokens, 0))
	if at, copied := Changed(before, digests(stateOf(tokens, 0)), 20); at != 20 || copied {
		t.Errorf("nothing changed: from %d on, copied: %v", at, copied)
	}
	rotated := stateOf(tokens, 0)
	for _, piece := range rotated.Sections[0].Rows(0, kv.RoleK).Pieces {
		piece.Mem[5*piece.RowStride] ^= 1
	}
	if at, copied := Changed(before, digests(rotated), 20); at != 5 || copied {
		t.Errorf("the key of position 5: from %d on, copied: %v", at, copied)
	}
	other := append([]int{}, tokens...)
	for i := 8; i < 20; i++ {
		other[i] += 1000
	}
	if at, copied := Changed(before, digests(stateOf(other, 0)), 20); at != 8 || !copied {
		t.Errorf("rows of other tokens from 8 on: from %d on, copied: %v", at, copied)
	}
}
