package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// identity is what a front knows of a model before it has seen a slot of it: all of the descriptor but tensors and groups.
type identity struct {
	desc     kv.Descriptor
	window   int // rows that a window layer looks back, the token's own included; 0: the file does not say
	adapters map[int]kv.Hash
	ids      []int // of the adapters, in the order in which the server names them
}

// identify reads which model a server runs: the file that /props names, whose bytes are hashed once and remembered in memo, the server's build, and
// the arguments that change rows.
func identify(ctx context.Context, p api.Props, rows string, adapters []api.Adapter, memo string, open func(path string) (*gguf.File, error)) (*identity, error) {
	if _, err := os.Stat(p.ModelPath); err != nil {
		return nil, fmt.Errorf("the file of the server's model cannot be read here: %w", err)
	}
	f, err := open(p.ModelPath)
	if err != nil {
		return nil, err
	}
	head, err := modelfile.ReadHead(p.ModelPath, memo)
	if err != nil {
		return nil, err
	}
	weights, err := modelfile.WeightsHash(ctx, p.ModelPath, memo)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id := &identity{adapters: map[int]kv.Hash{}}
	id.desc = kv.Descriptor{
		Name: nameOf(f, p), Weights: weights, Tokenizer: head.Tokenizer, Architecture: head.Architecture,
		RoPE:        ropeOf(f, head, p.Defaults.Context),
		StateFormat: strings.TrimSpace("llama-server " + p.Build + " " + rows),
	}
	if n, err := f.Int(head.Architecture + ".attention.sliding_window"); err == nil && n > 0 && n < 1<<30 {
		id.window = int(n)
	}
	for _, a := range adapters {
		if a.Invocation != "" {
			return nil, fmt.Errorf("LoRA adapter %s applies from certain tokens on", a.Path)
		}
		if id.adapters[a.ID], err = modelfile.WeightsHash(ctx, a.Path, memo); err != nil {
			return nil, fmt.Errorf("LoRA adapter %s: %w", a.Path, err)
		}
		id.ids = append(id.ids, a.ID)
	}
	return id, nil
}

func nameOf(f *gguf.File, p api.Props) string {
	if name, err := f.String("general.name"); err == nil && name != "" {
		return name
	}
	return p.ModelAlias
}

// ropeOf takes all that the model's file says of the rotation of K. Of an unsaid base the architecture has its own.
func ropeOf(f *gguf.File, head modelfile.Head, context int) kv.RoPE {
	r := kv.RoPE{Type: "as " + head.Architecture, FreqFactors: head.Factors}
	var rest []string
	prefix := head.Architecture + ".rope."
	arrays := false
	for _, key := range f.WithPrefix(prefix) {
		if v := f.Meta[key]; v.Scalar != nil {
			rest = append(rest, strings.TrimPrefix(key, prefix)+"="+fmt.Sprint(v.Scalar))
		} else {
			arrays = true
		}
	}
	sort.Strings(rest)
	if arrays {
		if h, err := f.MetaHash(prefix); err != nil {
			rest = append(rest, err.Error())
		} else {
			rest = append(rest, "all="+h.String())
		}
	}
	if head.TwoSets { // which of them is used depends on the length of the context
		rest = append(rest, "n_ctx="+strconv.Itoa(context))
	}
	r.Scaling = strings.Join(rest, " ")
	return r
}

// layout is where the tensors of a descriptor lie in the slot files of a server.
type layout struct {
	format state.FileFormat
	window int
	planes []plane
	strict atomic.Bool // the server wants a checkpoint for every prefix: releases before 0.7.0 want a row more of a window than they save
}

type plane struct {
	section, layer int
	role           kv.Role
}

const windowSection = 1

// strictNote names the note that remembers layout.strict, beside the one of how slot files look.
func strictNote(note string) string { return strings.Replace(note, "slot files", "checkpoints", 1) }

// describe completes the descriptor by what a slot file shows.
func (id *identity) describe(file state.FileFormat) (kv.Descriptor, *layout, error) {
	f := file.State
	d, lay := id.desc, &layout{format: file}
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
		lay.window = max(1, id.window-1)
		d.Groups = append(d.Groups, kv.Group{Kind: kv.Window, Window: lay.window})
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
func (lay *layout) rows(sections []*state.Section, recurrent []byte, n int) kv.Rows {
	out := make(kv.Rows, len(lay.planes), len(lay.planes)+1)
	for i, p := range lay.planes {
		out[i] = sections[p.section].Rows(p.layer, p.role)
	}
	switch {
	case lay.format.Recurrent == nil:
	case recurrent == nil:
		out = append(out, kv.TensorRows{})
	default:
		out = append(out, kv.Packed(n, 1, recurrent))
	}
	return out
}

func sectionsOf(st *state.State) []*state.Section {
	out := make([]*state.Section, len(st.Sections))
	for i := range st.Sections {
		out[i] = &st.Sections[i]
	}
	return out
}

// file is the shape of a slot file with these tokens. Of the window layers it has the rows that the next token looks back at. A server reuses
// a prefix that is shorter than the window only where a checkpoint says that all of it is there.
func (lay *layout) file(tokens []int32, sequence int) *state.File {
	n := len(tokens)
	out := &state.File{Tokens: tokens, State: &state.State{Sequence: int32(sequence)}}
	for i, section := range lay.format.State.Sections {
		stream, first := 0, 0
		if section.Streams > 1 {
			stream = sequence
		}
		if i == windowSection {
			first = max(0, n-lay.window)
		}
		out.State.Sections = append(out.State.Sections, state.Section{Cells: state.Span(stream, first, n-first)})
	}
	if lay.window > 0 && (n < lay.window || lay.strict.Load()) {
		last := n - 1
		if n >= lay.window {
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

// again is how many of the tokens of a restored prefix the server computes again.
func (lay *layout) again(n int) int {
	if lay.window > 0 && n < lay.window {
		return 1 // it goes back to the checkpoint, and from there one token more
	}
	return 0
}

// rolls reports whether a slot can go back to any place of what it holds. Where there are windows or recurrent layers, it goes back to
// checkpoints that the server may have made.
func (lay *layout) rolls() bool { return lay.window == 0 && lay.format.Recurrent == nil }
