package llamacpp

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Sections of a blob and groups of a descriptor are the same thing here: the full-attention layers are the All group, the
// window layers, if any, a Window group.
const (
	baseSection   = 0
	windowSection = 1
)

// plane is where a tensor of the descriptor lies in a blob.
type plane struct {
	section, layer int
	role           kv.Role // in the blob: K or V
}

// layout maps the tensors of a descriptor to the sections and layers of a blob.
type layout struct {
	format state.Format
	window int // rows that a window layer looks back, besides the token itself; 0: no window layers
	planes []plane

	recurrent *state.Recurrent // of a hybrid: what follows the sections, and is the tensor behind those of the planes
}

// newLayout fills in the groups and tensors of d for blobs of that format. window is llama.cpp's n_swa.
func newLayout(d *kv.Descriptor, f state.Format, window int) (*layout, error) {
	lay := &layout{format: f}
	d.Groups = []kv.Group{{Kind: kv.All}}
	if len(f.Sections) > 1 {
		// A token at position P attends to n_swa positions, its own included. Asking for one row less than llama.cpp
		// hands out is what lets a prompt be matched up to its last token after it was stored with it.
		lay.window = max(1, window-1)
		d.Groups = append(d.Groups, kv.Group{Kind: kv.Window, Window: lay.window})
	}
	layer := 0
	for s, section := range f.Sections {
		for i, l := range section.Layers {
			k, err := tensorOf(layer, kv.RoleK, l.K, s)
			if err != nil {
				return nil, err
			}
			if l.V.RowBytes == 0 {
				k.Role = kv.RoleState // a latent of both
			}
			d.Tensors = append(d.Tensors, k)
			lay.planes = append(lay.planes, plane{s, i, kv.RoleK})
			if l.V.RowBytes > 0 {
				v, err := tensorOf(layer, kv.RoleV, l.V, s)
				if err != nil {
					return nil, err
				}
				d.Tensors = append(d.Tensors, v)
				lay.planes = append(lay.planes, plane{s, i, kv.RoleV})
			}
			layer++
		}
	}
	return lay, nil
}

func tensorOf(layer int, role kv.Role, f state.TensorFormat, group int) (kv.Tensor, error) {
	d, err := f.DType()
	if err != nil {
		return kv.Tensor{}, fmt.Errorf("layer %d %s: %w", layer, role, err)
	}
	return kv.Tensor{Layer: layer, Role: role, DType: d, Width: f.Width(), Group: group}, nil
}

// rows describes the memory of a blob in the order of the descriptor's tensors.
func (lay *layout) rows(s *state.State) kv.Rows {
	out := make(kv.Rows, len(lay.planes))
	for i, p := range lay.planes {
		out[i] = s.Sections[p.section].Rows(p.layer, p.role)
	}
	return out
}

// windowPlanes lists the tensors of the window group, as they lie in a blob of the tail alone.
func (lay *layout) windowPlanes() (tensors []int) {
	for i, p := range lay.planes {
		if p.section == windowSection {
			tensors = append(tensors, i)
		}
	}
	return tensors
}

// cells are those of a blob that holds the positions [from, to) of a prefix of n tokens, and of these so many rows of the window
// layers as lie among the last windowRows of the prefix.
func (lay *layout) cells(from, to, n, windowRows, sequence int) []state.Cells {
	out := make([]state.Cells, len(lay.format.Sections))
	for i, s := range lay.format.Sections {
		stream := 0
		if s.Streams > 1 {
			stream = sequence
		}
		first := from
		if i == windowSection {
			first = min(to, max(from, n-windowRows))
		}
		out[i] = state.Span(stream, first, to-first)
	}
	return out
}

// size is the length of a blob with these cells; with the recurrent state of a hybrid, or with that of no token.
func (lay *layout) size(cells []state.Cells, withState bool) int {
	n := lay.format.Size(cells)
	switch {
	case lay.recurrent == nil:
	case withState:
		n += lay.recurrent.Size()
	default:
		n += len(lay.recurrent.Empty())
	}
	return n
}

// oneBuffer reports whether all sequences of the context share their cells.
func (lay *layout) oneBuffer() bool {
	return !slices.ContainsFunc(lay.format.Sections, func(s state.SectionFormat) bool { return s.Streams != 1 })
}

// only keeps the rows of the positions [start, end) of the window tensors, and of the others all or none.
func (lay *layout) only(d kv.Descriptor, rows kv.Rows, start, end int, others bool) kv.Rows {
	out := make(kv.Rows, len(rows))
	for i, p := range lay.planes {
		if p.section == windowSection {
			out[i] = rows[i].Slice(d.Tensors[i], max(start, rows[i].First), end)
		} else if others {
			out[i] = rows[i]
		}
	}
	return out
}
