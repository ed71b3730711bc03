package llamacpp

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// Adapter is a LoRA adapter that llama.cpp has loaded.
type Adapter struct {
	kv.Adapter         // what its file holds ([WeightsHash]), and the scale it is set with
	Pointer    uintptr // the llama_adapter_lora, of llama_adapter_lora_init
}

// SetAdapters sets the LoRA adapters of the context in place of all that were set (llama_set_adapters_lora), and compares what it
// computes then, as [Session.Recheck] does. Prompts name the same adapters.
//
// A program that sets adapters in no other way cannot forget to say so. What it evaluates without Prefill is stored under these
// adapters. What the sequences hold that the session did not see come is not stored any more, since it was evaluated with others.
//
// If the comparison fails, llama.cpp has the new adapters, and nothing is stored or restored until SetAdapters or Recheck succeeds.
// If the adapters change no row, the error says so: then call Recheck with those that are left, and leave the others out of prompts.
func (s *Session) SetAdapters(ctx context.Context, adapters ...Adapter) error {
	if ctx == nil {
		return errNoContext
	}
	if err := errors.Join(s.attached.over(), s.unchanged(ctx)); err != nil {
		return err
	}
	if s.cells.lib.SetAdapters == nil {
		return fmt.Errorf("%w: the library has no llama_set_adapters_lora: set them, and call Recheck", ErrRefused)
	}
	given, pointers, scales := make([]kv.Adapter, len(adapters)), make([]uintptr, len(adapters)), make([]float32, len(adapters))
	for i, a := range adapters {
		if a.Pointer == 0 {
			return fmt.Errorf("%w: the pointer of adapter %d is 0", ErrRefused, i)
		}
		given[i], pointers[i], scales[i] = a.Adapter, a.Pointer, a.Scale
	}
	if err := (&kv.Prompt{Adapters: given}).Validate(); err != nil {
		return fmt.Errorf("llamacpp: adapters: %w", err)
	}
	given = inOneOrder(given)
	if err := s.mayHave(given); err != nil {
		return err
	}
	if s.runtime == nil && !(s.identity.agrees && s.identity.has(given)) {
		s.known.doubtUnseen("it was evaluated before the adapters were set: empty the sequence")
	}
	s.identity.agrees = false
	s.cells.lib.Synchronize(s.cells.lctx)
	var first *uintptr
	var scale *float32
	if len(adapters) > 0 {
		first, scale = &pointers[0], &scales[0]
	}
	if got := s.cells.lib.SetAdapters(s.cells.lctx, first, uintptr(len(adapters)), scale); got != 0 {
		return fmt.Errorf("%w: llama_set_adapters_lora returned %d for %d adapters, and which the context has is not known: call SetAdapters again", ErrState, got, len(adapters))
	}
	return s.identity.recheck(ctx, s.o.Sequence, given, true)
}

// Recheck compares what the context computes with what is stored, as Attach does. Call it before Save or Prefill after you have changed
// the context's LoRA adapters yourself (llama_set_adapters_lora), with the adapters that it has now. [Session.SetAdapters] does both.
//
// Recheck evaluates a few tokens in an empty sequence, or takes the tokens of one out and puts them back, as Attach does. The logits of
// the last decode are lost.
//
// The first Recheck of a set of adapters is taken as it is, and all later contexts with them must compute the same. Adapters that
// change no bit of what the base model computes are refused.
//
// It returns an [IdentityError] as Attach does. Until a Recheck succeeds, Save and Prefill then return ErrIdentity. Restore looks by
// itself for a prompt with adapters that are known.
func (s *Session) Recheck(ctx context.Context, adapters ...kv.Adapter) error {
	if ctx == nil {
		return errNoContext
	}
	if err := errors.Join(s.attached.over(), s.unchanged(ctx)); err != nil {
		return err
	}
	adapters = inOneOrder(adapters)
	if err := s.mayHave(adapters); err != nil {
		return err
	}
	return s.identity.recheck(ctx, s.o.Sequence, adapters, true)
}

// mayHave refuses other adapters than before for a context whose Runtime has rows: they would be stored under these.
func (s *Session) mayHave(adapters []kv.Adapter) error {
	if s.runtime == nil || s.identity.has(adapters) {
		return nil
	}
	return s.runtime.hasNone()
}
