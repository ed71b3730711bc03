package layout

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// The state of any part is as long as it is said to be, reads as a state of the layout, and has the rows that belong into it: all of its
// positions in the base section, and in the window section those that the end of the prefix sees.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layer := state.LayerFormat{K: state.TensorFormat{RowBytes: 64}, V: state.TensorFormat{RowBytes: 32}} // of f32
		f := state.Format{Sections: []state.SectionFormat{{Streams: 1, Layers: []state.LayerFormat{layer}}}}
		window := rapid.IntRange(0, 9).Draw(t, "window")
		if window > 0 {
			f.Sections = append(f.Sections, state.SectionFormat{Streams: 1, Layers: []state.LayerFormat{layer, layer}})
		}
		var d kv.Descriptor
		lay, err := New(&d, f, window)
		if err != nil {
			t.Fatal(err)
		}
		p := Part{WindowRows: rapid.IntRange(0, 12).Draw(t, "window rows")}
		p.Tokens = rapid.IntRange(1, 40).Draw(t, "tokens")
		p.From = rapid.IntRange(0, p.Tokens-1).Draw(t, "from")
		p.To = rapid.IntRange(p.From+1, p.Tokens).Draw(t, "to")

		_, rows, blob := lay.Build(make([]byte, lay.PartBytes(p)), p)
		if len(blob) != lay.PartBytes(p) {
			t.Fatalf("%d bytes, said were %d", len(blob), lay.PartBytes(p))
		}
		if len(rows) != len(d.Tensors) {
			t.Fatalf("rows of %d tensors, the descriptor has %d", len(rows), len(d.Tensors))
		}
		st, err := f.Parse(blob)
		if err != nil {
			t.Fatal(err)
		}
		for i := range st.Sections {
			want := p.To - p.From
			if i == Window {
				want = p.To - min(p.To, max(p.From, p.Tokens-p.WindowRows))
			}
			if n := st.Sections[i].Count(); n != want {
				t.Fatalf("section %d has %d rows of %+v, expected %d", i, n, p, want)
			}
		}
		if empty := lay.EmptyBytes(); empty >= len(blob) {
			t.Fatalf("a sequence without cells has %d bytes, one with %d rows %d", empty, p.To-p.From, len(blob))
		}
	})
}
