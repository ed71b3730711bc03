//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// Rows of a Runtime that were computed before the adapters were others, or while the model's file was another one, are not stored.
func TestRuntimeOfAnotherModel(t *testing.T) {
	ctx := context.Background()
	x := canaryCase{arch: "llama", path: kit.WriteFile(t, "m.gguf", ggufgen.LLaMA(1, 3, 64))}
	x.adapters(t, []string{"attn_k", "attn_v"})
	lib, api := library(t)
	r := rigFor(t, lib, api, x.path, llama.ContextOptions{Sequences: 4, Unified: true}, db.Options{Codec: quant.Raw})
	a := llamacpp.Adapter{Adapter: kv.Adapter{Hash: kv.Hash{1}, Scale: 1}, Pointer: r.lora().load(r.model.Pointer(), kit.WriteFile(t, "lora.gguf", ggufgen.LoRA(x.arch, 7, 0.5, x.targets...)))}
	c := r.context()
	s := r.attach(c, nil)
	rt, err := s.Runtime(llamacpp.RuntimeOptions{Decode: c.DecodeSteps, Logits: c.Logits})
	if err != nil {
		t.Fatal(err)
	}
	tokens := randomTokens(1, 32)
	all := kv.Range{Start: 0, End: 32}
	fill := func(seq int) {
		t.Helper()
		steps := make([]kv.Step, 32)
		for i := range steps {
			steps[i] = kv.Step{Token: tokens[i], Pos: i, Seq: seq, Logits: i == 31}
		}
		if err := rt.Decode(ctx, steps); err != nil {
			t.Fatal(err)
		}
	}
	with := kv.Tokens(tokens...)
	with.Adapters = []kv.Adapter{a.Adapter}
	fill(0)
	if err := s.SetAdapters(ctx, a); !errors.Is(err, llamacpp.ErrNotEmpty) {
		t.Fatal(err)
	}
	if err := s.Recheck(ctx, a.Adapter); !errors.Is(err, llamacpp.ErrNotEmpty) {
		t.Fatal(err)
	}
	if err := rt.Remove(0, all); err != nil {
		t.Fatal(err)
	}
	if err := s.SetAdapters(ctx, a); err != nil {
		t.Fatal(err)
	}
	fill(0)
	if err := rt.Copy(0, 1, all); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(x.path, later, later); err != nil { // overwritten, and put back
		t.Fatal(err)
	}
	if err := rt.Store(ctx, with, 0, all); !errors.Is(err, llamacpp.ErrLineage) {
		t.Error(err)
	}
	if err := rt.Copy(1, 2, all); err != nil {
		t.Fatal(err)
	}
	if err := rt.Store(ctx, with, 2, all); !errors.Is(err, llamacpp.ErrLineage) {
		t.Error(err)
	}
	if err := rt.Remove(2, all); err != nil {
		t.Fatal(err)
	}
	fill(2)
	if err := rt.Store(ctx, with, 2, all); err != nil {
		t.Error(err)
	}
}
