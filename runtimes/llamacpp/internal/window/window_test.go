package window

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Captured rows are a map from position to row, whatever is captured, dropped and cut; the bytes are those of its rows.
func TestCapturedIsAMap(t *testing.T) {
	const rowBytes = 32
	layer := state.LayerFormat{K: state.TensorFormat{RowBytes: rowBytes}, V: state.TensorFormat{RowBytes: rowBytes}} // of f32
	f := state.Format{Sections: []state.SectionFormat{{Streams: 1}, {Streams: 1, Layers: []state.LayerFormat{layer}}}}
	rapid.Check(t, func(t *rapid.T) {
		var d kv.Descriptor
		lay, err := layout.New(&d, f, 8)
		if err != nil {
			t.Fatal(err)
		}
		var c Captured
		want := map[int]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"grow": func(t *rapid.T) {
				first := max(0, c.End()+rapid.IntRange(-4, 3).Draw(t, "from"))
				count := rapid.IntRange(1, 8).Draw(t, "rows")
				st, _ := f.Build(nil, 0, []state.Cells{state.Span(0, 0, 0), state.Span(0, first, count)})
				for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
					for _, piece := range st.Sections[layout.Window].Rows(0, role).Pieces {
						for n := range piece.Count {
							binary.LittleEndian.PutUint32(piece.Mem[n*piece.RowStride:], uint32(first+n))
						}
					}
				}
				end := c.End()
				c.Grow(lay, d, &st.Sections[layout.Window], 0, first+count)
				for p := first; p < first+count; p++ {
					if p >= end {
						want[p] = true
					}
				}
			},
			"drop": func(t *rapid.T) {
				n := rapid.IntRange(0, c.End()+1).Draw(t, "before")
				c.Drop(n)
				for p := range want {
					if p < n {
						delete(want, p)
					}
				}
			},
			"cut": func(t *rapid.T) {
				n := rapid.IntRange(0, c.End()+1).Draw(t, "from")
				c.Cut(n)
				for p := range want {
					if p >= n {
						delete(want, p)
					}
				}
			},
			"": func(t *rapid.T) {
				rows := 0
				for _, x := range c.Stretches {
					for _, pieces := range x.pieces {
						at := x.First
						for _, piece := range pieces {
							for n := range piece.Count {
								if got := int(binary.LittleEndian.Uint32(piece.Mem[n*rowBytes:])); got != at || !want[at] {
									t.Fatalf("position %d has the row of %d, wanted: %v", at, got, want[at])
								}
								at++
							}
						}
						if at != x.End {
							t.Fatalf("a stretch ends at %d, its rows at %d", x.End, at)
						}
					}
					rows += x.End - x.First
				}
				if rows != len(want) || c.Bytes != int64(2*rowBytes*rows) {
					t.Fatalf("%d rows of %d bytes, expected %d", rows, c.Bytes, len(want))
				}
			},
		})
	})
}
