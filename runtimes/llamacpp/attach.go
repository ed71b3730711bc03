package llamacpp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Mode is how a context's states are kept.
type Mode int

const (
	// Rows: cut into rows, restorable up to any token.
	Rows Mode = iota + 1
	// Opaque: whole blobs, restorable at exactly the positions at which they were taken: by Save, and by Prefill shortly before the end.
	Opaque
	// Hybrid: the attention layers as rows, the recurrent layers as states; restorable where there is a state, as Opaque.
	Hybrid
)

func (m Mode) String() string {
	switch m {
	case Rows:
		return "rows"
	case Opaque:
		return "opaque"
	case Hybrid:
		return "hybrid"
	}
	return fmt.Sprintf("mode(%d)", int(m))
}

// Session is a context attached to a store. Like the context, it is used by one goroutine at a time.
type Session struct {
	lib    *Library
	lctx   uintptr
	memory uintptr
	o      Options
	store  *db.Store
	model  *db.Model
	mode   Mode
	why    string
	lay    *layout // of mode Rows
	tail   bool    // the window section can be had alone

	// The canary was compared with these adapters, if it sung at all, and was that far off.
	adapters     []kv.Adapter
	note         []byte // as it is stored
	sung         bool
	deviation    float64
	canaryFormat state.Format // without sections: not understood
	rest         int          // bytes of a state behind what that format describes: the recurrent part of a hybrid
	shape        string

	manyDims bool // a position is more than one number: tokens are not counted by it

	buf   []byte           // a blob, between llama.cpp and the store
	large []byte           // the same during a call, if it is too large to be kept
	lines map[int]*lineage // by sequence
	turns map[int]*turn    // by sequence: those that have not ended

	number  uint64   // of the sessions of this process
	files   *files   // that the model was loaded from; nil: not known
	runtime *Runtime // to which all sequences belong; nil: there is none
}

// Attach finds out how states of a llama.cpp context can be kept and registers its model in the store. lctx is the
// llama_context pointer; it must stay valid while the session is used. The session needs no closing. A context has one session: if it has one already, that one's calls
// return [ErrReplaced] from then on.
//
// It evaluates eight tokens (Options.Decode), and 24 the first time: the logits of the last decode are lost. What the context computes for them is compared with what it
// computed when rows were first stored under its identity; an [IdentityError] says that it is something else.
//
// It takes the blob of these tokens apart, builds it again and wants the same bytes, gives it back to llama.cpp and
// wants the same bytes again. What that does not show to be made of rows is kept as Opaque; what cannot be kept at all
// is refused with an error that wraps ErrRefused.
func Attach(ctx context.Context, store *db.Store, lib *Library, lctx uintptr, o Options) (*Session, error) {
	switch {
	case ctx == nil:
		return nil, errNoContext
	case store == nil:
		return nil, fmt.Errorf("%w: no store", ErrRefused)
	case lib == nil:
		return nil, fmt.Errorf("%w: no library", ErrRefused)
	case lctx == 0:
		return nil, fmt.Errorf("%w: the pointer of the llama.cpp context is 0", ErrRefused)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.CaptureBytes == 0 {
		o.CaptureBytes = 256 << 20
	}
	if err := lib.check(); err != nil {
		return nil, err
	}
	s := &Session{lib: lib, lctx: lctx, memory: lib.GetMemory(lctx), o: o, store: store, lines: map[int]*lineage{}, turns: map[int]*turn{}}
	model := lib.GetModel(lctx)
	if model == 0 || s.memory == 0 {
		return nil, fmt.Errorf("%w: the context has no KV cache", ErrRefused)
	}
	s.files = filesOf(o.Identity)
	desc, head, err := lib.describe(ctx, model, o.Identity)
	if err != nil {
		return nil, err
	}
	if s.files != nil && o.Weights == (kv.Hash{}) {
		s.files.weights = desc.Weights
	}
	if head.Forgotten != nil {
		o.Logger.Warn("what was read of the model file could not be remembered: every attach reads all of it", slog.String("memo", o.Memo), slog.Any("err", head.Forgotten))
	}
	desc.BlockTokens = o.BlockTokens
	if which := lib.factorsOf(lctx, model, desc.Architecture, head.TwoSets); which != "" {
		desc.RoPE.Scaling = strings.TrimSpace(desc.RoPE.Scaling + " " + which)
	}
	if err := s.refuse(model, desc.Architecture); err != nil {
		return nil, err
	}
	song := s.newCanary(model, desc.Architecture)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("llamacpp: attach: %w", context.Cause(ctx))
	}
	blob, tail, err := s.probe(song)
	if err != nil {
		return nil, err
	}
	s.mode = Rows
	if s.why = s.opaqueBecause(model, &desc, blob, tail); s.why != "" {
		s.mode = Opaque
	} else if s.lay.recurrent != nil {
		s.mode = Hybrid
		desc.StateFormat = s.recurrentFormat()
		if o.RowsOnly {
			return nil, fmt.Errorf("%w: the model is a hybrid: the state of its recurrent layers cannot be cut", ErrRefused)
		}
	}
	if s.mode == Opaque {
		if o.RowsOnly {
			return nil, fmt.Errorf("%w: %s", ErrRefused, s.why)
		}
		if lib.Version == nil {
			return nil, fmt.Errorf("%w: %s, and a whole state is that of one release of llama.cpp, which this one does not name: set Library.Version", ErrRefused, s.why)
		}
		if desc.BlockTokens == 0 {
			desc.BlockTokens = 64 // records have no rows that would make larger blocks worth while
		}
		desc.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}}
		desc.Tensors = []kv.Tensor{{Role: kv.RoleState, DType: kv.Bytes, Group: 1}}
		// A whole blob is tied to all that a row is free of: release, layout of V, streams, cache types.
		desc.StateFormat = fmt.Sprintf("llama.cpp %s %s", lib.Version(), state.Shape(blob))
		if rotationDisabled() {
			desc.StateFormat += " unrotated"
		}
	} else {
		desc.Rotated, err = s.rotation(model, &desc)
		if err != nil {
			return nil, err
		}
		s.why = fmt.Sprintf("%d layers in %d sections, window %d", len(desc.Tensors), len(s.lay.format.Sections), s.lay.window)
		if s.mode == Hybrid {
			s.why = fmt.Sprintf("%d layers of attention as rows, %d bytes of recurrent state", len(s.lay.format.Sections[0].Layers), s.lay.recurrent.Size())
		}
		if !s.lay.format.HasV() && s.o.Put.Codec == 0 {
			s.o.Put.Codec = quant.Raw // latents of K and V in one: an error would be in both
		}
	}
	registered, err := store.Register(ctx, desc)
	if err != nil {
		return nil, err
	}
	s.model = registered.Model
	s.shape = state.Shape(blob)
	s.canaryFormat, s.rest = s.formatOf(blob, tail)
	song.portrait, song.settings = s.portraitOf(blob), s.settings(model)
	if err := s.verify(ctx, song, inOneOrder(o.Adapters), true); err != nil {
		return nil, err
	}
	s.o.DiscardCanary = false // once
	s.begins()
	o.Logger.Info("llama.cpp context attached", slog.String("model", desc.Name), slog.String("mode", s.mode.String()),
		slog.String("why", s.why), slog.String("fingerprint", s.model.Fingerprint().String()))
	return s, nil
}

// Mode says how states are kept.
func (s *Session) Mode() Mode { return s.mode }

// Why says why the mode is what it is.
func (s *Session) Why() string { return s.why }

// Model is the context's model in the store.
func (s *Session) Model() *db.Model { return s.model }

// refuse finds models whose K and V depend on more than the tokens before.
func (s *Session) refuse(model uintptr, arch string) error {
	switch causal, _ := s.lib.meta(model, arch+".attention.causal"); {
	case causal == "false":
		return fmt.Errorf("%w: the attention of %s is not causal: K and V depend on later tokens", ErrRefused, arch)
	case s.lib.HasEncoder(model):
		return fmt.Errorf("%w: %s has an encoder: K and V depend on what it was given", ErrRefused, arch)
	case s.lib.IsDiffusion != nil && s.lib.IsDiffusion(model):
		return fmt.Errorf("%w: %s is a diffusion model: K and V depend on later tokens", ErrRefused, arch)
	}
	return nil
}

// probe returns the state of a sequence that holds the canary, and checks that llama.cpp takes it back. Of a model with a window, and of a
// hybrid, it has the last part alone, too, if that can be had.
func (s *Session) probe(c canary) (blob, tail []byte, err error) {
	if err := s.has(s.o.Sequence); err != nil {
		return nil, nil, err
	}
	err = s.in(s.o.Sequence, func(sequence int) error {
		if blob, err = s.sing(c, sequence, canaryLength); err != nil {
			return err
		}
		if !s.clear(sequence) {
			return fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrRefused, sequence)
		}
		if err := s.set(sequence, blob); err != nil {
			return fmt.Errorf("%w: llama.cpp does not take back its own state: %w", ErrRefused, err)
		}
		again, err := s.get(sequence, 0)
		if err != nil {
			return err
		}
		if !bytes.Equal(blob, again) {
			return fmt.Errorf("%w: a state of %d bytes that was given back reads differently", ErrRefused, len(blob))
		}
		model := s.lib.GetModel(s.lctx)
		if s.lib.Window(model) > 0 || s.lib.IsHybrid != nil && s.lib.IsHybrid(model) {
			if b, err := s.get(sequence, FlagPartial); err == nil {
				tail = bytes.Clone(b)
			}
		}
		return nil
	})
	return blob, tail, err
}

// opaqueBecause sets the layout and fills in the descriptor's tensors if blobs of this context are understood to be rows of
// tokens; else it says why not.
func (s *Session) opaqueBecause(model uintptr, d *kv.Descriptor, blob, tail []byte) string {
	l := s.lib
	window := int(l.Window(model))
	r := l.RopeType(model)
	s.manyDims = r != ropeNone && r != ropeNorm && r != ropeNeox
	switch {
	case s.o.OpaqueOnly:
		return "Options.OpaqueOnly"
	case l.IsRecurrent(model):
		return "the model is recurrent: its state cannot be cut"
	case l.IsHybrid != nil && l.IsHybrid(model):
		if why := s.hybridBecause(model, d, blob, tail); why != "" {
			return "the model is a hybrid, whose recurrent layers' state cannot be cut: " + why
		}
		return ""
	case s.manyDims:
		return fmt.Sprintf("positions are of more than one dimension (RoPE %s)", ropeName(r))
	}
	// A model with a window has a second cache for the window layers; one without must not have a second cache, whatever
	// that is.
	var f state.Format
	var err error
	if window > 0 {
		f, err = state.Learn(blob, 2)
	}
	if window <= 0 || err != nil {
		f, err = state.Learn(blob, 1)
	}
	layers := 0
	for _, section := range f.Sections {
		layers += len(section.Layers)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the layout is not known: %v", err)
	case f.ExtBytes != 0:
		return fmt.Sprintf("cells carry %d bytes besides their position", f.ExtBytes)
	case layers == 0 || layers > int(l.Layers(model)):
		return fmt.Sprintf("the state has %d layers, the model %d", layers, l.Layers(model))
	}
	lay, err := newLayout(d, f, window)
	if err != nil {
		return err.Error()
	}
	s.lay = lay
	if lay.window > 0 { // after every chunk of a prefill, the window section alone saves copying the others
		_, err = f.Tail().Parse(tail)
		s.tail = err == nil
	}
	return ""
}
