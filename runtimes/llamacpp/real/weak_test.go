//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// Of a model with weights of 4 bits, rounding moves rows as much as a weak adapter does, so the canary cannot tell. What it lets pass
// puts logits no further off than what is no fault at all: rows that were computed with flash attention, gone on with without it. -v prints all.
func TestWeakAdapters(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, no weak adapters are tried: -short")
	}
	ctx := context.Background()
	lib, api := library(t)
	for _, x := range canaryCases(t) {
		if !slices.Contains([]string{"SmolLM2-135M f16", "Gemma 3 270M f16"}, x.name) {
			continue
		}
		x.opt.FlashAttention = ref(true)
		r := rigFor(t, lib, api, x.path, x.opt, db.Options{Codec: quant.Raw})
		tokens := randomTokens(1, 150) // ids below 512: bytes and frequent pieces
		stored := kv.Tokens(tokens[:128]...)
		attach := func(c *llama.Context) (*llamacpp.Session, error) {
			o := llamacpp.Options{Decode: c.Decode, Logger: kit.Quiet}
			said(&o)
			return llamacpp.Attach(ctx, r.store, api, c.Pointer(), o)
		}
		first := r.context()
		s, err := attach(first)
		if err != nil {
			t.Fatal(err)
		}
		kit.EvaluateAndSave(t, s, stored, 0, 0)
		// off is how far what is restored is from what this context computes itself.
		off := func(c *llama.Context) (times, off float64, refused bool) {
			t.Helper()
			defer c.Close()
			s, err := attach(c)
			if errors.Is(err, llamacpp.ErrIdentity) {
				return 0, 0, true
			}
			if err != nil {
				t.Fatal(err)
			}
			whole := kv.Tokens(tokens...)
			got, err := s.Restore(ctx, whole, 0)
			if err != nil || got.Tokens != 128 {
				t.Fatalf("restored %d: %v", got.Tokens, err)
			}
			if err := s.Prefill(ctx, whole, got.Tokens, 0); err != nil {
				t.Fatal(err)
			}
			warm := c.Logits(-1)
			c.Clear()
			r.decode(c, tokens, 0, batchTokens)
			return s.Deviation(), difference(c.Logits(-1), warm), false
		}
		r.opt.FlashAttention = ref(false)
		d, floor, refused := off(r.context())
		r.opt.FlashAttention = ref(true)
		if refused {
			t.Fatal("no flash attention is refused")
		}
		t.Logf("%s: no flash attention: %.2g, logits off by %.2g", x.name, d, floor)
		for _, strength := range []float32{1, 0.5, 0.2, 0.1} {
			for _, q := range x.queryAdapters() {
				if q.last && strength < 1 {
					continue // no row is another one, however strong it is
				}
				c := r.context()
				r.lora().on(t, r, c, ggufgen.LoRA(x.arch, 7, strength, q.targets...))
				d, off, refused := off(c)
				if refused {
					t.Logf("%s: adapter of strength %g, %s: refused", x.name, strength, q.name)
					continue
				}
				t.Logf("%s: adapter of strength %g, %s: %.2g, logits off by %.2g", x.name, strength, q.name, d, off)
				if off > 5*floor {
					t.Errorf("%s: adapter of strength %g, %s: logits are off by %.2g, without flash attention by %.2g", x.name, strength, q.name, off, floor)
				}
			}
		}
	}
}
