//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
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

// Adapters that are set through the session are those that rows are stored and restored under, and what a sequence had before is not stored under them.
func TestSetAdapters(t *testing.T) {
	ctx := t.Context()
	x := canaryCase{arch: "llama", path: kit.WriteFile(t, "m.gguf", ggufgen.LLaMA(1, 3, 64))}
	x.adapters(t, []string{"attn_k", "attn_v"})
	lib, api := library(t)
	r := rigFor(t, lib, api, x.path, llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	l := r.lora()
	load := func(seed uint64, hash byte, scale float32) llamacpp.Adapter {
		p := l.load(r.model.Pointer(), kit.WriteFile(t, "lora.gguf", ggufgen.LoRA(x.arch, seed, 0.5, x.targets...)))
		if p == 0 {
			t.Fatal("no adapter")
		}
		return llamacpp.Adapter{Adapter: kv.Adapter{Hash: kv.Hash{hash}, Scale: scale}, Pointer: p}
	}
	a, b := load(7, 1, 1), load(8, 2, 0.5)
	tokens := randomTokens(1, 129)
	with := func(adapters ...llamacpp.Adapter) kv.Prompt {
		p := kv.Tokens(tokens...)
		for _, x := range adapters {
			p.Adapters = append(p.Adapters, x.Adapter)
		}
		return p
	}
	c := r.context()
	s := r.attach(c, nil)
	cold := map[int][]float32{}
	sets := [][]llamacpp.Adapter{{}, {a}, {b}, {a, b}, {b, a}, {}}
	for i, set := range sets {
		c.Clear()
		if err := s.SetAdapters(ctx, set...); err != nil {
			t.Fatal(i, err)
		}
		r.decode(c, tokens, 0, batchTokens) // a loop of the program's own
		cold[i] = c.Logits(-1)
		if _, err := s.Save(ctx, with(set...), 0); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := range 3 {
		if i > 0 && difference(cold[i], cold[0]) < 1e-3 {
			t.Errorf("set %d changes nothing", i)
		}
	}
	for i, set := range sets {
		d := r.context()
		s := r.attach(d, nil)
		if err := s.SetAdapters(ctx, set...); err != nil {
			t.Fatal(i, err)
		}
		got, err := s.Restore(ctx, with(set...), 0)
		if err != nil || got.Tokens != 128 {
			t.Fatal(i, got, err)
		}
		if err := s.Prefill(ctx, with(set...), 128, 0); err != nil {
			t.Fatal(err)
		}
		if x := difference(cold[i], d.Logits(-1)); x > 1e-3 {
			t.Errorf("set %d: restored rows are %.2g off", i, x)
		}
		if other := sets[(i+1)%len(sets)]; !slices.Equal(other, set) && len(other) != len(set) { // a prompt that names others is refused
			if _, err := s.Save(ctx, with(other...), 0); err == nil {
				t.Errorf("set %d: saved under others", i)
			}
		}
		d.Close()
	}

	// What was evaluated with others is not stored under these, nor what is evaluated behind it.
	c.Clear()
	other := randomTokens(3, 100)
	r.decode(c, other[:60], 0, batchTokens)
	if err := s.SetAdapters(ctx, a); err != nil {
		t.Fatal(err)
	}
	p := kv.Tokens(other...)
	p.Adapters = []kv.Adapter{a.Adapter}
	_, err := s.Save(ctx, p, 0)
	kit.WantLineage(t, "Save", err, 0)
	r.decode(c, other, 60, batchTokens)
	_, err = s.Save(ctx, p, 0)
	kit.WantLineage(t, "Save of more", err, 0)
	c.Clear()
	kit.EvaluateAndSave(t, s, p, 0, 0)

	// One that is not loaded for this, or not said, is an error before anything is set.
	if err := s.SetAdapters(ctx, llamacpp.Adapter{Adapter: a.Adapter}); !errors.Is(err, llamacpp.ErrRefused) {
		t.Error(err)
	}
	if _, err := s.Save(ctx, p, 0); err != nil {
		t.Error(err)
	}
	noRows := x.queryAdapters()
	last := load(9, 3, 1)
	for _, q := range noRows {
		if q.last {
			last.Pointer = l.load(r.model.Pointer(), kit.WriteFile(t, "lora.gguf", ggufgen.LoRA(x.arch, 9, 0.5, q.targets...)))
		}
	}
	if err := s.SetAdapters(ctx, last); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Error("an adapter that changes no row:", err)
	}
	if _, err := s.Save(ctx, p, 0); !errors.Is(err, llamacpp.ErrIdentity) && !errors.Is(err, llamacpp.ErrLineage) {
		t.Error(err)
	}
	if err := s.Recheck(ctx); err != nil {
		t.Error("its rows are those of none:", err)
	}
}
