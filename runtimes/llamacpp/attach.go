package llamacpp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Attach finds out how states of a llama.cpp context can be kept, and registers its model in the store. lctx is the llama_context
// pointer. It must stay valid while the session is used. The session needs no closing. A context has one session: if it has one
// already, that one's calls return [ErrReplaced] from then on.
//
// Attach evaluates eight tokens (Options.Decode), and 24 the first time: the logits of the last decode are lost. It compares what the
// context computes for them with what a context computed when rows were first stored under the same identity. An [IdentityError]
// says that they differ.
//
// Attach takes the state of these tokens apart, builds it again, and expects the same bytes. It gives the state back to llama.cpp,
// and expects the same bytes again. A state that this does not show to be made of rows is kept as Opaque. A state that cannot be kept
// at all is refused with an error that wraps ErrRefused.
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
	c := newCells(lib, lctx)
	if c.model() == 0 || c.memory == 0 {
		return nil, fmt.Errorf("%w: the context has no KV cache", ErrRefused)
	}
	s := newSession(store, c, o)
	desc, err := describe(ctx, c, s.files, o)
	if err != nil {
		return nil, err
	}
	if err := lib.refuse(c.model(), desc.Architecture); err != nil {
		return nil, err
	}
	plan := s.identity.canary.plan(desc.Architecture)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("llamacpp: attach: %w", context.Cause(ctx))
	}
	blob, tail, err := s.identity.canary.probe(plan)
	if err != nil {
		return nil, err
	}
	if err := s.form.learn(c, o, &desc, blob, tail); err != nil {
		return nil, err
	}
	s.o.Put.Codec = s.form.codec(o.Put.Codec)
	registered, err := store.Register(ctx, desc)
	if err != nil {
		return nil, err
	}
	s.identity.model = registered.Model
	plan.Portrait, plan.Settings = s.form.portrait(blob), s.identity.canary.settings()
	if err := s.identity.verify(ctx, plan, inOneOrder(o.Adapters), true); err != nil {
		return nil, err
	}
	s.identity.discard = false // once
	s.model = s.identity.model
	s.turns = &turns{model: s.model, of: map[int]*turn{}}
	s.attached = attach(lctx)
	o.Logger.Info("llama.cpp context attached", slog.String("model", s.model.Descriptor().Name), slog.String("mode", s.form.mode.String()),
		slog.String("why", s.form.why), slog.String("fingerprint", s.model.Fingerprint().String()))
	return s, nil
}

// newSession makes the rooms of a session. Attach fills in what it finds out: the model, and how states are kept.
func newSession(store *db.Store, c *cells, o Options) *Session {
	f := newForm(c)
	k := &known{cells: c, form: f, lines: map[int]*lineage{}}
	d := &deferred{cells: c, form: f, known: k, decode: o.Decode}
	return &Session{
		o: o, files: filesOf(o.Identity), cells: c, form: f, known: k, deferred: d,
		identity: &identity{
			canary: &canaryMaker{cells: c, form: f, deferred: d, sequence: o.Sequence},
			store:  store, discard: o.DiscardCanary, log: o.Logger,
		},
	}
}

// describe returns the descriptor of the context's model but for its groups and tensors.
func describe(ctx context.Context, c *cells, f *files, o Options) (kv.Descriptor, error) {
	desc, head, err := c.lib.describe(ctx, c.model(), o.Identity)
	if err != nil {
		return desc, err
	}
	if f != nil && o.Weights == (kv.Hash{}) {
		f.weights = desc.Weights
	}
	if head.Forgotten != nil {
		o.Logger.Warn("what was read of the model file could not be remembered: every attach reads all of it", slog.String("memo", o.Memo), slog.Any("err", head.Forgotten))
	}
	desc.BlockTokens = o.BlockTokens
	if which := c.lib.factorsOf(c.lctx, c.model(), desc.Architecture, head.TwoSets); which != "" {
		desc.RoPE.Scaling = strings.TrimSpace(desc.RoPE.Scaling + " " + which)
	}
	return desc, nil
}

// refuse finds models whose K and V depend on more than the tokens before.
func (l *Library) refuse(model uintptr, arch string) error {
	switch causal, _ := l.meta(model, arch+".attention.causal"); {
	case causal == "false":
		return fmt.Errorf("%w: the attention of %s is not causal: K and V depend on later tokens", ErrRefused, arch)
	case l.HasEncoder(model):
		return fmt.Errorf("%w: %s has an encoder: K and V depend on what it was given", ErrRefused, arch)
	case l.IsDiffusion != nil && l.IsDiffusion(model):
		return fmt.Errorf("%w: %s is a diffusion model: K and V depend on later tokens", ErrRefused, arch)
	}
	return nil
}
