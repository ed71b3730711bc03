package llamacpp

import (
	"bytes"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// newForm is what the model alone says.
func newForm(c *cells) *form {
	model := c.model()
	f := &form{recurs: c.recurrent() || c.lib.IsHybrid != nil && c.lib.IsHybrid(model)}
	if !f.recurs {
		f.window = max(0, int(c.lib.Window(model))-1)
	}
	r := c.lib.RopeType(model)
	f.manyDims = r != ropeNone && r != ropeNorm && r != ropeNeox
	return f
}

// learn finds out how states are kept, from one of the canary, and fills in the groups and tensors of the descriptor. tail
// is the part of that state which can be had alone. An error says that they cannot be kept as o wants.
func (f *form) learn(c *cells, o Options, d *kv.Descriptor, blob, tail []byte) (err error) {
	f.mode, f.shape = Rows, state.Shape(blob)
	if f.why = f.opaqueBecause(c, o, d, blob, tail); f.why != "" {
		f.mode = Opaque
	} else if f.lay.Recurrent != nil {
		f.mode = Hybrid
	}
	if f.lay != nil {
		f.window = f.lay.Window
	}
	f.know(blob, tail)
	switch f.mode {
	case Opaque:
		return f.keepWhole(c.lib, o, d)
	case Hybrid:
		// A stored recurrent part is tied to the release and the layout.
		d.StateFormat = fmt.Sprintf("llama.cpp %s recurrent %s", c.lib.Version(), f.lay.Recurrent)
		if o.RowsOnly {
			return fmt.Errorf("%w: the model is a hybrid: the state of its recurrent layers cannot be cut", ErrRefused)
		}
		f.why = fmt.Sprintf("%d layers of attention as rows, %d bytes of recurrent state", len(f.lay.Format.Sections[layout.Base].Layers), f.lay.Recurrent.Size())
	default:
		f.why = fmt.Sprintf("%d layers in %d sections, window %d", len(d.Tensors), len(f.lay.Format.Sections), f.lay.Window)
	}
	d.Rotated, err = c.lib.rotation(c.model(), f.lay.Format, o.Rotated, d)
	return err
}

// keepWhole describes states that are kept whole. They are tied to all that a row is free of: release, layout of V, streams,
// cache types.
func (f *form) keepWhole(lib *Library, o Options, d *kv.Descriptor) error {
	if o.RowsOnly {
		return fmt.Errorf("%w: %s", ErrRefused, f.why)
	}
	if lib.Version == nil {
		return fmt.Errorf("%w: %s, and a whole state is that of one release of llama.cpp, which this one does not name: set Library.Version", ErrRefused, f.why)
	}
	if d.BlockTokens == 0 {
		d.BlockTokens = 64 // records have no rows that would make larger blocks worth while
	}
	d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}}
	d.Tensors = []kv.Tensor{{Role: kv.RoleState, DType: kv.Bytes, Group: 1}}
	d.StateFormat = fmt.Sprintf("llama.cpp %s %s", lib.Version(), f.shape)
	if rotationDisabled() {
		d.StateFormat += " unrotated"
	}
	return nil
}

// codec is how rows are stored unless the caller said so. Latents are K and V in one: an error would be in both, so they stay as they are.
func (f *form) codec(o quant.Codec) quant.Codec {
	if o == 0 && f.lay != nil && !f.lay.Format.HasV() {
		return quant.Raw
	}
	return o
}

// know finds out the layout of a state, whether or not it is kept as rows, and how many bytes follow that the layout does not
// describe: the recurrent part of a hybrid, which is tail.
func (f *form) know(blob, tail []byte) {
	f.format, f.rest = state.Format{}, 0
	if f.lay != nil {
		f.format = f.lay.Format
		if f.lay.Recurrent != nil {
			f.rest = f.lay.Recurrent.Size()
		}
		return
	}
	if f.recurs {
		part, err := state.Body(tail)
		if err != nil || !bytes.HasSuffix(blob, part) {
			return
		}
		f.rest = len(part)
	}
	for n := 2; n > 0; n-- {
		if format, err := state.Learn(blob[:len(blob)-f.rest], n); err == nil {
			f.format = format
			return
		}
	}
	f.rest = 0
}

// opaqueBecause sets the layout, and fills in the descriptor's groups and tensors, if states of this context are understood to be
// rows of tokens; else it says why not.
func (f *form) opaqueBecause(c *cells, o Options, d *kv.Descriptor, blob, tail []byte) string {
	l, model := c.lib, c.model()
	window := int(l.Window(model))
	switch {
	case o.OpaqueOnly:
		return "Options.OpaqueOnly"
	case l.IsRecurrent(model):
		return "the model is recurrent: its state cannot be cut"
	case l.IsHybrid != nil && l.IsHybrid(model):
		if why := f.hybridBecause(c, d, blob, tail); why != "" {
			return "the model is a hybrid, whose recurrent layers' state cannot be cut: " + why
		}
		return ""
	case f.manyDims:
		return fmt.Sprintf("positions are of more than one dimension (RoPE %s)", ropeName(l.RopeType(model)))
	}
	// A model with a window has a second cache for the window layers. One without must not have a second cache, whatever
	// that is.
	var format state.Format
	var err error
	if window > 0 {
		format, err = state.Learn(blob, 2)
	}
	if window <= 0 || err != nil {
		format, err = state.Learn(blob, 1)
	}
	layers := 0
	for _, section := range format.Sections {
		layers += len(section.Layers)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the layout is not known: %v", err)
	case format.ExtBytes != 0:
		return fmt.Sprintf("cells carry %d bytes besides their position", format.ExtBytes)
	case layers == 0 || layers > int(l.Layers(model)):
		return fmt.Sprintf("the state has %d layers, the model %d", layers, l.Layers(model))
	}
	lay, err := layout.New(d, format, window)
	if err != nil {
		return err.Error()
	}
	f.lay = lay
	if lay.Window > 0 { // after every chunk of a prefill, the window section alone saves copying the others
		_, err = format.Tail().Parse(tail)
		f.tail = err == nil
	}
	return ""
}

// A hybrid has attention layers, whose rows can be cut at any token, and recurrent ones, whose state is that after one token. The
// rows are the All group. The recurrent part of a state, as it is, is the state of a StateAt group, the last tensor of the descriptor.

// hybridBecause is opaqueBecause of a hybrid: rows of tokens, and a recurrent part behind them. tail is that part alone.
func (f *form) hybridBecause(c *cells, d *kv.Descriptor, blob, tail []byte) string {
	l, model := c.lib, c.model()
	switch {
	case l.Version == nil:
		return "the release, to which a recurrent state is tied, is not known"
	case l.Window(model) > 0:
		return "its attention has windows"
	}
	part, err := state.Body(tail)
	if err != nil {
		return err.Error()
	}
	recurrent, err := state.LearnRecurrent(part)
	if err != nil {
		return fmt.Sprintf("the layout of the recurrent part is not known: %v", err)
	}
	if !bytes.HasSuffix(blob, part) {
		return "the recurrent part is not the end of the state"
	}
	format, err := state.Learn(blob[:len(blob)-len(part)], 1)
	switch {
	case err != nil:
		return fmt.Sprintf("the layout of the attention part is not known: %v", err)
	case format.ExtBytes != 0:
		return fmt.Sprintf("cells carry %d bytes besides their position", format.ExtBytes)
	case len(format.Sections[layout.Base].Layers) == 0 || len(format.Sections[layout.Base].Layers) > int(l.Layers(model)):
		return fmt.Sprintf("the state has %d layers of attention, the model %d layers", len(format.Sections[layout.Base].Layers), l.Layers(model))
	}
	lay, err := layout.New(d, format, 0)
	if err != nil {
		return err.Error()
	}
	lay.Recurrent = &recurrent
	d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: len(format.Sections[layout.Base].Layers), Role: kv.RoleState, DType: kv.Bytes, Group: 1})
	f.lay = lay
	return ""
}
