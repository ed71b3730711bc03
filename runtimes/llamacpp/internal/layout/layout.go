package layout

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Sections of a state are the groups of the descriptor: the full-attention layers are the All group, and the
// window layers, if there are any, are a Window group.
const (
	Base   = 0
	Window = 1
)

// Plane is where a tensor of the descriptor lies in a state.
type Plane struct {
	Section, Layer int
	Role           kv.Role // in the state: K or V
}

// Layout maps the tensors of a descriptor to the sections and layers of a state.
type Layout struct {
	Format state.Format
	Window int // rows that a window layer looks back, besides the token itself; 0: no window layers
	Planes []Plane

	Recurrent *state.Recurrent // of a hybrid: it follows the sections, and is the tensor behind those of Planes
}

// New returns the layout of states of that format, and fills in the groups and tensors of d. window is llama.cpp's n_swa.
func New(d *kv.Descriptor, f state.Format, window int) (*Layout, error) {
	lay := &Layout{Format: f}
	d.Groups = []kv.Group{{Kind: kv.All}}
	if len(f.Sections) > 1 {
		// A token at position P attends to n_swa positions, its own included. llama.cpp hands out one row more than
		// is asked for here. So a prompt matches up to its last token after it was stored with that token.
		lay.Window = max(1, window-1)
		d.Groups = append(d.Groups, kv.Group{Kind: kv.Window, Window: lay.Window})
	}
	layer := 0
	for s, section := range f.Sections {
		for i, l := range section.Layers {
			k, err := Tensor(layer, kv.RoleK, l.K, s)
			if err != nil {
				return nil, err
			}
			if l.V.RowBytes == 0 {
				k.Role = kv.RoleState // a latent of both
			}
			d.Tensors = append(d.Tensors, k)
			lay.Planes = append(lay.Planes, Plane{s, i, kv.RoleK})
			if l.V.RowBytes > 0 {
				v, err := Tensor(layer, kv.RoleV, l.V, s)
				if err != nil {
					return nil, err
				}
				d.Tensors = append(d.Tensors, v)
				lay.Planes = append(lay.Planes, Plane{s, i, kv.RoleV})
			}
			layer++
		}
	}
	return lay, nil
}

// Tensor is a layer's K or V as the descriptor names it. The error says that the store does not know its element type.
func Tensor(layer int, role kv.Role, f state.TensorFormat, group int) (kv.Tensor, error) {
	d, err := f.DType()
	if err != nil {
		return kv.Tensor{}, fmt.Errorf("layer %d %s: %w", layer, role, err)
	}
	return kv.Tensor{Layer: layer, Role: role, DType: d, Width: f.Width(), Group: group}, nil
}

// Rows describes the memory of a state in the order of the descriptor's tensors.
func (lay *Layout) Rows(s *state.State) kv.Rows {
	out := make(kv.Rows, len(lay.Planes))
	for i, p := range lay.Planes {
		out[i] = s.Sections[p.Section].Rows(p.Layer, p.Role)
	}
	return out
}

// WindowPlanes lists the tensors of the window group, in the order of a state's last section.
func (lay *Layout) WindowPlanes() (tensors []int) {
	for i, p := range lay.Planes {
		if p.Section == Window {
			tensors = append(tensors, i)
		}
	}
	return tensors
}

// Only keeps the rows of the positions [start, end) of the window tensors, and of the others all or none.
func (lay *Layout) Only(d kv.Descriptor, rows kv.Rows, start, end int, others bool) kv.Rows {
	out := make(kv.Rows, len(rows))
	for i, p := range lay.Planes {
		if p.Section == Window {
			out[i] = rows[i].Slice(d.Tensors[i], max(start, rows[i].First), end)
		} else if others {
			out[i] = rows[i]
		}
	}
	return out
}

// OneBuffer reports whether all sequences of the context share their cells.
func (lay *Layout) OneBuffer() bool {
	return !slices.ContainsFunc(lay.Format.Sections, func(s state.SectionFormat) bool { return s.Streams != 1 })
}

// RowsAtOnce is how many rows of a sequence one state moves: those of so many bytes. Of a model with windows they are
// also no more than the last row still sees, because llama.cpp hands out no others.
func (lay *Layout) RowsAtOnce(bytes int, d kv.Descriptor) int {
	n := max(1, bytes/d.TokenBytes())
	if lay.Window > 0 {
		n = min(n, lay.Window)
	}
	return n
}

// comparedBefore is how many stored rows a save reads again before the first new one. A shift shows there: all rows
// behind it are others.
const comparedBefore = 32

// FirstNeeded is the first position whose rows a save reads: the block of the first token that is not stored, or the
// window before the end.
func (lay *Layout) FirstNeeded(prompt kv.Prompt, stored, blockTokens int) int {
	n := len(prompt.Tokens)
	if stored == 0 || n == 0 {
		return 0
	}
	from, _ := prompt.Block(prompt.BlockAt(min(stored, n-1), blockTokens), blockTokens)
	if lay.Window > 0 {
		from = min(from, n-lay.Window-1)
	}
	return max(0, from-comparedBefore)
}
