package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/canary"
)

// identity says whether a context computes the rows that are stored: with which adapters it was compared, and what came of it.
type identity struct {
	canary  *canaryMaker
	store   *db.Store
	model   *db.Model
	discard bool // Options.DiscardCanary, once
	log     *slog.Logger

	agrees    bool         // the canary was compared and found to be what is stored
	adapters  []kv.Adapter // with which it was compared
	note      []byte       // as it is stored
	deviation float64      // how far off it was
}

// checked refuses a prompt with other adapters than those with which the canary was compared, or if another session has found the
// stored one to be wrong and discarded it since.
func (i *identity) checked(prompt kv.Prompt) error {
	if !i.agrees {
		return fmt.Errorf("%w: what the context computes was not found to be what is stored: see what Session.Recheck says", ErrIdentity)
	}
	b, err := i.model.Note(noteName(i.adapters))
	switch {
	case err != nil && !errors.Is(err, db.ErrNotFound):
		return err
	case !bytes.Equal(b, i.note):
		return fmt.Errorf("%w: the canary that the context was compared with is not the stored one any more: call Session.Recheck", ErrIdentity)
	case i.has(prompt.Adapters):
		return nil
	}
	return fmt.Errorf("%w: the prompt has %d adapters, and the context was checked with others (%d): after llama_set_adapters_lora call Session.Recheck with the "+
		"adapters that are set", ErrIdentity, len(prompt.Adapters), len(i.adapters))
}

// has reports whether these are the adapters with which the canary was compared.
func (i *identity) has(adapters []kv.Adapter) bool {
	return adaptersKey(adapters) == adaptersKey(i.adapters)
}

// recheck compares what the context computes now, with these adapters.
func (i *identity) recheck(ctx context.Context, sequence int, adapters []kv.Adapter, mayStore bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	i.agrees = false // until it was compared
	c := i.canary.plan(i.model.Descriptor().Architecture)
	c.Settings = i.canary.settings()
	var err error
	if c.Portrait, err = i.canary.portrait(c, sequence, canary.Length); err != nil {
		return err
	}
	return i.verify(ctx, c, adapters, mayStore)
}

// verifying is held from the look at the stored canary until there is one: of two sessions that are the first at once, one stores.
var verifying sync.Mutex

// verify compares the canary with the stored one. If there is none, it stores this one, unless mayStore is false: then the error says that
// nothing is known. The adapters are those that the context has now.
func (i *identity) verify(ctx context.Context, c canary.Canary, adapters []kv.Adapter, mayStore bool) error {
	verifying.Lock()
	defer verifying.Unlock()
	note, stored, err := i.stored(adapters)
	if err != nil {
		return err
	}
	if stored != nil {
		if c, err = i.canary.like(c, *stored); err != nil {
			return err
		}
		bad := i.against(*stored, c, adapters)
		if bad == nil {
			i.agreed(adapters, note)
			return nil
		}
		if !i.discard {
			return bad
		}
		if err := i.drop(ctx, bad); err != nil {
			return err
		}
	} else if !mayStore {
		return fmt.Errorf("%w: nothing is stored with the prompt's %d adapters, so whether the context has them is not known: after llama_set_adapters_lora call "+
			"Session.Recheck with them", ErrIdentity, len(adapters))
	}
	return i.first(ctx, c, adapters)
}

// against compares the canary with the stored one. A result says that the context computes something else.
func (i *identity) against(stored, c canary.Canary, adapters []kv.Adapter) *IdentityError {
	d, settings := stored.Against(c), stored.Differs(c)
	i.deviation = d.Times
	if d.Times > 1 {
		return &IdentityError{
			Fingerprint: i.model.Fingerprint(), Adapters: slices.Clone(adapters), Difference: d.Times, Plane: d.Plane, Looks: d.Looks, Settings: settings,
		}
	}
	if d.Worst > unexplained && len(settings) == 0 {
		i.log.Warn("the context computes a little else than what is stored, with the same settings as far as llama.cpp tells: another device, or an adapter that was not said?",
			slog.String("model", i.model.Descriptor().Name), slog.Float64("difference", d.Worst))
	}
	return nil
}

// unexplained is by how much of its length a plane does not change while all settings that can be read are the same.
const unexplained = 0.02

// drop takes all that is stored of this version of the model, and registers it anew.
func (i *identity) drop(ctx context.Context, why error) error {
	i.log.Warn("what was stored under this identity is dropped", slog.Any("why", why))
	desc := i.model.Descriptor()
	if err := i.store.Retire(ctx, i.model.Fingerprint()); err != nil {
		return err
	}
	again, err := i.store.Register(ctx, desc)
	if err != nil {
		return err
	}
	i.model, i.deviation = again.Model, 0
	return nil
}

// first stores a canary where there is none.
func (i *identity) first(ctx context.Context, c canary.Canary, adapters []kv.Adapter) error {
	err := i.unlikeBase(c, adapters)
	if err != nil {
		return err
	}
	if c.Noise, err = i.canary.noise(c); err != nil {
		return err
	}
	note := c.Encode()
	err = i.model.SetNote(ctx, noteName(adapters), note)
	if errors.Is(err, db.ErrReadOnly) {
		i.log.Warn("a read-only store has no canary of this model: that the context computes the rows that are stored is not checked")
		note, err = nil, nil
	}
	if err == nil {
		i.agreed(adapters, note)
	}
	return err
}

// unlikeBase refuses a first canary with adapters that is, to the bit, the one without: they are not set, or change nothing that is stored.
func (i *identity) unlikeBase(c canary.Canary, adapters []kv.Adapter) error {
	if len(adapters) == 0 {
		return nil
	}
	_, base, err := i.stored(nil)
	if base == nil || err != nil {
		return err
	}
	if c, err = i.canary.like(c, *base); err != nil {
		return err
	}
	switch d := base.Against(c); {
	case d.Worst == 0:
		return fmt.Errorf("%w: with the %d adapters that are said the context computes exactly what it computes without them. Either they are not set "+
			"(llama_set_adapters_lora), or they change no row of K or V (the last layer's queries, or what comes after them): then leave them out, and the rows are shared",
			ErrIdentity, len(adapters))
	case d.Times <= 1 && len(base.Differs(c)) > 0:
		i.log.Warn("with the adapters that are said the context computes nearly what it computes without them: are they set?",
			slog.String("model", i.model.Descriptor().Name), slog.Float64("difference", d.Worst))
	}
	return nil
}

// stored returns the note, and what it says; nil if there is none, or one of another release.
func (i *identity) stored(adapters []kv.Adapter) (note []byte, _ *canary.Canary, err error) {
	note, err = i.model.Note(noteName(adapters))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	c, ok := canary.Decode(note)
	if !ok {
		i.log.Warn("the stored canary is of another release, and is made anew", slog.String("model", i.model.Descriptor().Name))
		return nil, nil, nil
	}
	return note, &c, nil
}

// agreed notes that the context computes what is stored.
func (i *identity) agreed(adapters []kv.Adapter, note []byte) {
	i.adapters, i.note, i.agrees = slices.Clone(adapters), note, true
}

// noteName is the name of the canary's note.
func noteName(adapters []kv.Adapter) string {
	return strings.TrimSpace("llamacpp canary " + adaptersKey(adapters))
}
