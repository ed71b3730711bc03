package llamacpp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// IdentityError is an ErrIdentity: the context computes other rows than those that are stored under its identity. Either one may
// be the wrong one, the first that was ever attached, too.
type IdentityError struct {
	Fingerprint kv.Fingerprint
	Adapters    []kv.Adapter
	Difference  float64  // in multiples of what numerics explain: batches, kernels, flash attention, releases
	Plane       string   // that decided: a layer's K or V
	Looks       string   // what it looks like
	Settings    []string // those that llama.cpp tells and that differ: "name: stored, now"
}

func (e *IdentityError) Error() string {
	settings := "all settings that llama.cpp tells are the same; it does not tell RoPE frequency base, scale and YaRN, nor adapters"
	if len(e.Settings) > 0 {
		settings = "of the settings that llama.cpp tells differ " + strings.Join(e.Settings, "; ")
	}
	return fmt.Sprintf("%v: the context computes other rows than those stored under fingerprint %s: they differ %.2g times as much as numerics explain, "+
		"first in %s. %s; %s. Make the context as it was made before, or say in Options what is different (Identity, Adapters); if the stored rows are the wrong ones, "+
		"Options.DiscardCanary or Store.Retire drops them all", ErrIdentity, e.Fingerprint, e.Difference, e.Plane, e.Looks, settings)
}

func (e *IdentityError) Unwrap() error { return ErrIdentity }

// inOneOrder returns adapters in an order of their own, without those of scale 0: llama.cpp keeps neither the caller's order nor these.
func inOneOrder(adapters []kv.Adapter) []kv.Adapter {
	out := slices.DeleteFunc(slices.Clone(adapters), func(a kv.Adapter) bool { return a.Scale == 0 })
	slices.SortStableFunc(out, func(a, b kv.Adapter) int {
		if c := bytes.Compare(a.Hash[:], b.Hash[:]); c != 0 {
			return c
		}
		return cmp.Compare(a.Scale, b.Scale)
	})
	return out
}

// ordered is a prompt with its adapters in one order.
func ordered(prompt kv.Prompt) kv.Prompt {
	if len(prompt.Adapters) > 0 {
		prompt.Adapters = inOneOrder(prompt.Adapters)
	}
	return prompt
}

// adaptersKey names a set of adapters.
func adaptersKey(adapters []kv.Adapter) string {
	if len(adapters) == 0 {
		return ""
	}
	var all []string
	for _, a := range adapters {
		all = append(all, fmt.Sprintf("%x %08x", a.Hash, math.Float32bits(a.Scale)))
	}
	sort.Strings(all)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(all, "\n"))))[:32]
}

// canaryNote is the name of the note.
func canaryNote(adapters []kv.Adapter) string {
	return strings.TrimSpace("llamacpp canary " + adaptersKey(adapters))
}

// verifying is held from the look at the stored canary until there is one: of two sessions that are the first at once, one stores.
var verifying sync.Mutex

// verify compares the canary with the stored one. If there is none, it stores this one, unless mayStore is false: then the error says that
// nothing is known. The adapters are those that the context has now.
func (s *Session) verify(ctx context.Context, c canary, adapters []kv.Adapter, mayStore bool) error {
	verifying.Lock()
	defer verifying.Unlock()
	b, stored, err := s.storedCanary(adapters)
	if err != nil {
		return err
	}
	if stored != nil {
		if c, err = s.like(c, *stored); err != nil {
			return err
		}
		d, settings := stored.against(c), stored.differs(c)
		s.deviation = d.Times
		if d.Times <= 1 {
			if d.Worst > unexplained && len(settings) == 0 {
				s.o.Logger.Warn("the context computes a little else than what is stored, with the same settings as far as llama.cpp tells: another device, or an adapter that was not said?",
					slog.String("model", s.model.Descriptor().Name), slog.Float64("difference", d.Worst))
			}
			s.sings(adapters, b)
			return nil
		}
		bad := &IdentityError{
			Fingerprint: s.model.Fingerprint(), Adapters: slices.Clone(adapters), Difference: d.Times, Plane: d.Plane, Looks: d.Looks, Settings: settings,
		}
		if !s.o.DiscardCanary {
			return bad
		}
		s.o.Logger.Warn("what was stored under this identity is dropped", slog.Any("why", bad))
		desc := s.model.Descriptor()
		if err := s.store.Retire(ctx, s.model.Fingerprint()); err != nil {
			return err
		}
		again, err := s.store.Register(ctx, desc)
		if err != nil {
			return err
		}
		s.model = again.Model
		s.deviation = 0
	} else if !mayStore {
		return fmt.Errorf("%w: nothing is stored with the prompt's %d adapters, so whether the context has them is not known: after llama_set_adapters_lora call "+
			"Session.Recheck with them", ErrIdentity, len(adapters))
	}
	if err := s.unlikeBase(c, adapters); err != nil {
		return err
	}
	if c.noise, err = s.noiseOf(c, s.o.Sequence); err != nil {
		return err
	}
	b = c.encode()
	err = s.model.SetNote(ctx, canaryNote(adapters), b)
	if errors.Is(err, db.ErrReadOnly) {
		s.o.Logger.Warn("a read-only store has no canary of this model: that the context computes the rows that are stored is not checked")
		b, err = nil, nil
	}
	if err == nil {
		s.sings(adapters, b)
	}
	return err
}

// storedCanary returns the note, and what it says; nil if there is none, or one of another release.
func (s *Session) storedCanary(adapters []kv.Adapter) (note []byte, _ *canary, err error) {
	note, err = s.model.Note(canaryNote(adapters))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	c, ok := decodeCanary(note)
	if !ok {
		s.o.Logger.Warn("the stored canary is of another release, and is made anew", slog.String("model", s.model.Descriptor().Name))
		return nil, nil, nil
	}
	return note, &c, nil
}

// like returns c with the tokens and the position of the stored one, which a binding with other functions chose.
func (s *Session) like(c, stored canary) (canary, error) {
	if slices.Equal(stored.tokens, c.tokens) && stored.position == c.position {
		return c, nil
	}
	var err error
	c.tokens, c.position = stored.tokens, stored.position
	c.portrait, err = s.sungIn(c, s.o.Sequence, canaryLength)
	return c, err
}

// unlikeBase refuses a first canary with adapters that is, to the bit, the one without: they are not set, or change nothing that is stored.
func (s *Session) unlikeBase(c canary, adapters []kv.Adapter) error {
	if len(adapters) == 0 {
		return nil
	}
	_, base, err := s.storedCanary(nil)
	if base == nil || err != nil {
		return err
	}
	if c, err = s.like(c, *base); err != nil {
		return err
	}
	switch d := base.against(c); {
	case d.Worst == 0:
		return fmt.Errorf("%w: with the %d adapters that are said the context computes exactly what it computes without them. Either they are not set "+
			"(llama_set_adapters_lora), or they change no row of K or V (the last layer's queries, or what comes after them): then leave them out, and the rows are shared",
			ErrIdentity, len(adapters))
	case d.Times <= 1 && len(base.differs(c)) > 0:
		s.o.Logger.Warn("with the adapters that are said the context computes nearly what it computes without them: are they set?",
			slog.String("model", s.model.Descriptor().Name), slog.Float64("difference", d.Worst))
	}
	return nil
}

// sings notes that the context computes what is stored.
func (s *Session) sings(adapters []kv.Adapter, note []byte) {
	s.adapters, s.note, s.sung = slices.Clone(adapters), note, true
}

// Recheck compares what the context computes with what is stored, as Attach does. Call it after you have changed the context's LoRA adapters yourself
// (llama_set_adapters_lora; [Session.SetAdapters] does both), with those that it has now, before Save or Prefill of a prompt with them. It evaluates a few tokens in a sequence that is
// empty, or takes the tokens of one out and puts them back, as Attach does; the logits of the last decode are lost.
//
// What is said first of a set of adapters is taken as it is, and is what all later contexts with them must compute; but adapters
// that change no bit of what the base model computes are refused.
//
// It returns an [IdentityError] as Attach does; until a Recheck succeeds, Save and Prefill then return ErrIdentity. Restore looks by
// itself for a prompt with adapters that are known.
func (s *Session) Recheck(ctx context.Context, adapters ...kv.Adapter) error {
	if ctx == nil {
		return errNoContext
	}
	if err := errors.Join(s.over(), s.unchanged(ctx)); err != nil {
		return err
	}
	adapters = inOneOrder(adapters)
	if err := s.mayHave(adapters); err != nil {
		return err
	}
	return s.recheckIn(ctx, s.o.Sequence, adapters, true)
}

func (s *Session) recheckIn(ctx context.Context, sequence int, adapters []kv.Adapter, mayStore bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sung = false
	model := s.lib.GetModel(s.lctx)
	c := s.newCanary(model, s.model.Descriptor().Architecture)
	c.settings = s.settings(model)
	var err error
	if c.portrait, err = s.sungIn(c, sequence, canaryLength); err != nil {
		return err
	}
	return s.verify(ctx, c, adapters, mayStore)
}

// identified refuses a prompt with other adapters than those with which the canary was compared, or if another session has found the
// stored one to be wrong and discarded it since.
func (s *Session) identified(prompt kv.Prompt) error {
	if !s.sung {
		return fmt.Errorf("%w: what the context computes was not found to be what is stored: see what Session.Recheck says", ErrIdentity)
	}
	b, err := s.model.Note(canaryNote(s.adapters))
	switch {
	case err != nil && !errors.Is(err, db.ErrNotFound):
		return err
	case !bytes.Equal(b, s.note):
		return fmt.Errorf("%w: the canary that the context was compared with is not the stored one any more: call Session.Recheck", ErrIdentity)
	case adaptersKey(prompt.Adapters) == adaptersKey(s.adapters):
		return nil
	}
	return fmt.Errorf("%w: the prompt has %d adapters, and the context was checked with others (%d): after llama_set_adapters_lora call Session.Recheck with the "+
		"adapters that are set", ErrIdentity, len(prompt.Adapters), len(s.adapters))
}

// Deviation is how far what the context computes was from what is stored when that was last compared, in multiples of what numerics
// explain: above 1 it is refused. 0 if there was nothing to compare with.
func (s *Session) Deviation() float64 { return s.deviation }

// unexplained is by how much of its length a plane does not change while all settings that can be read are the same.
const unexplained = 0.02
