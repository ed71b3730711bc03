package layout

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Layout says where the tensors of a descriptor lie in a server's slot files.
type Layout struct {
	Format state.FileFormat
	Window int
	planes []plane
	Strict atomic.Bool // the server wants a checkpoint for every prefix: releases before 0.7.0 want a row more of a window than they save
}

type plane struct {
	section, layer int
	role           kv.Role
}

const windowSection = 1

// StrictNote returns the name of the note that remembers Layout.Strict. note is the one that remembers how slot files look.
func StrictNote(note string) string { return strings.Replace(note, "slot files", "checkpoints", 1) }

// Describe completes the descriptor by what a slot file shows.
func (id *Identity) Describe(file state.FileFormat) (kv.Descriptor, *Layout, error) {
	f := file.State
	d, lay := id.Desc, &Layout{Format: file}
	d.Groups = []kv.Group{{Kind: kv.All}}
	if file.Recurrent != nil && len(f.Sections) > 1 {
		return d, nil, errors.New("the model has recurrent layers beside sliding windows")
	}
	if f.ExtBytes != 0 {
		return d, nil, errors.New("a position of this model is more than one number")
	}
	if len(f.Sections) > 1 {
		if id.window == 0 {
			return d, nil, errors.New("the model has sliding-window layers, and its file does not say how far they look back")
		}
		// A token attends to window rows, its own included: that many but one are needed before it.
		lay.Window = max(1, id.window-1)
		d.Groups = append(d.Groups, kv.Group{Kind: kv.Window, Window: lay.Window})
	}
	layer := 0
	var rotated []string
	for s, section := range f.Sections {
		if section.Rotation != (state.Rotation{}) {
			d.Rotated = true
			rotated = append(rotated, fmt.Sprintf("K %d V %d", section.Rotation.K, section.Rotation.V))
		}
		for i, l := range section.Layers {
			for _, t := range []struct {
				role   kv.Role
				format state.TensorFormat
			}{{kv.RoleK, l.K}, {kv.RoleV, l.V}} {
				if t.format.RowBytes == 0 {
					continue
				}
				dtype, err := t.format.DType()
				if err != nil {
					return d, nil, fmt.Errorf("layer %d %s: %w", layer, t.role, err)
				}
				role := t.role
				if l.V.RowBytes == 0 {
					role = kv.RoleState // a latent of both
				}
				d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: role, DType: dtype, Width: t.format.Width(), Group: s})
				lay.planes = append(lay.planes, plane{s, i, t.role})
			}
			layer++
		}
	}
	if file.Recurrent != nil { // the state is that after one token, and cannot be cut
		d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: kv.RoleState, DType: kv.Bytes, Group: len(d.Groups) - 1})
		d.StateFormat += " recurrent " + file.Recurrent.String()
	}
	if d.Rotated {
		d.StateFormat += " rotated by " + strings.Join(rotated, ", ")
	} else if !f.HasRotation {
		d.StateFormat += " rotation unsaid" // only releases of one kind write so
	}
	return d, lay, nil
}

// rows describes the memory of a state in the order of the descriptor's tensors: that of the sections, and, where the model has recurrent
// layers, of their state after n tokens; nil: there is none.
func (lay *Layout) rows(sections []*state.Section, recurrent []byte, n int) kv.Rows {
	out := make(kv.Rows, len(lay.planes), len(lay.planes)+1)
	for i, p := range lay.planes {
		out[i] = sections[p.section].Rows(p.layer, p.role)
	}
	switch {
	case lay.Format.Recurrent == nil:
	case recurrent == nil:
		out = append(out, kv.TensorRows{})
	default:
		out = append(out, kv.Packed(n, 1, recurrent))
	}
	return out
}

// RowsOf returns the memory of a slot file that holds n tokens.
func (lay *Layout) RowsOf(f *state.File, n int) kv.Rows {
	return lay.rows(sectionsOf(f.State), f.Recurrent, n)
}

func sectionsOf(st *state.State) []*state.Section {
	out := make([]*state.Section, len(st.Sections))
	for i := range st.Sections {
		out[i] = &st.Sections[i]
	}
	return out
}

// File is the shape of a slot file with these tokens. Of the window layers it has the rows that the next token looks back at. A server reuses
// a prefix that is shorter than the window only where a checkpoint says that all of it is there.
func (lay *Layout) File(tokens []int32, sequence int) *state.File {
	n := len(tokens)
	out := &state.File{Tokens: tokens, State: &state.State{Sequence: int32(sequence)}}
	for i, section := range lay.Format.State.Sections {
		stream, first := 0, 0
		if section.Streams > 1 {
			stream = sequence
		}
		if i == windowSection {
			first = max(0, n-lay.Window)
		}
		out.State.Sections = append(out.State.Sections, state.Section{Cells: state.Span(stream, first, n-first)})
	}
	if lay.Window > 0 && (n < lay.Window || lay.Strict.Load()) {
		last := n - 1
		if n >= lay.Window {
			last = n // the server goes back to the position before: one more would lack a row
		}
		out.Trailer = true
		out.Checkpoints = []state.Checkpoint{{
			Tokens: int64(n), PosMax: int32(last),
			State: &state.State{Sequence: int32(sequence), Sections: []state.Section{{Cells: out.State.Sections[windowSection].Cells}}},
		}}
	}
	return out
}

// Again returns how many tokens of a restored prefix the server computes again.
func (lay *Layout) Again(n int) int {
	if lay.Window > 0 && n < lay.Window {
		return 1 // it goes back to the checkpoint, and from there one token more
	}
	return 0
}

// Rolls reports whether a slot can go back to any place of what it holds. Where there are windows or recurrent layers, it goes back to
// checkpoints that the server may have made.
func (lay *Layout) Rolls() bool { return lay.Window == 0 && lay.Format.Recurrent == nil }

// Portrait returns what is remembered of the rows of a slot file.
func (lay *Layout) Portrait(f *state.File) portrait.Portrait {
	rows := portrait.RowsOf(lay.Format.State, f.State)
	if f.Recurrent != nil {
		rows = append(rows, portrait.Rows{Name: "the recurrent state", Kind: portrait.Memory, Values: state.Values(kv.F32, f.Recurrent)})
	}
	return portrait.From(rows)
}
