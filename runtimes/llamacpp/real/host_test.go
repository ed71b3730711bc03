//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// errDecodeFails is what a host's decode function returns at times.
var errDecodeFails = errors.New("the host's decode function fails")

// A host does whatever it likes between two calls: it evaluates, removes, copies, shifts, divides, keeps, clears, saves and loads states, sets adapters, threads, and
// attention that is not causal, attaches again, makes contexts with other settings. Whatever it then asks to be stored, and whatever is stored of it: what is restored has the logits of a cold run. It
// keeps away from what docs/llamacpp-checks.md says that nothing tells, and that only.
//
// DORMOUSE_HOST_AUDITS is how many audits there are in all, DORMOUSE_HOST_SEED where the chance begins.
func TestHost(t *testing.T) {
	lib, api := library(t)
	audits, seed := 65, uint64(1)
	if testing.Short() {
		audits = 26
	}
	if text := os.Getenv("DORMOUSE_HOST_AUDITS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		audits, seed = n, uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("DORMOUSE_HOST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	f32, q8 := ref(llama.F32), ref(llama.Q8_0)
	models := []struct {
		name, arch string
		gguf       func() []byte
		opt        llama.ContextOptions
		adapters   []string
		opaque     bool
		tolerance  float64
	}{
		{"plain", "llama", func() []byte { return ggufgen.LLaMA(1, 3, 64) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, []string{"attn_k", "attn_v"}, false, 5e-3},
		{"stories260K", "llama", func() []byte { b, _ := os.ReadFile(stories); return b }, llama.ContextOptions{CacheK: f32, CacheV: f32}, []string{"attn_k", "attn_v"}, false, 5e-3},
		{"plain, q8_0", "llama", func() []byte { return ggufgen.LLaMA(1, 3, 64) }, llama.ContextOptions{CacheK: q8, CacheV: q8, FlashAttention: ref(true)}, nil, false, 1e-2},
		{"window", "gemma3", func() []byte { return ggufgen.Gemma3(2, 7, 64, 40) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, []string{"attn_k", "attn_v"}, false, 5e-3},
		{"window, all cells kept", "gemma3", func() []byte { return ggufgen.Gemma3(2, 7, 64, 40) }, llama.ContextOptions{CacheK: f32, CacheV: f32, FullWindow: true}, nil, false, 5e-3},
		{"latent", "deepseek2", func() []byte { return ggufgen.DeepSeek2(3, 3) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, nil, false, 5e-3},
		{"M-RoPE", "qwen2vl", func() []byte { return ggufgen.Qwen2VL(6, 2) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, nil, false, 5e-3},
		{"mamba", "mamba", func() []byte { return ggufgen.Mamba(4, 2) }, llama.ContextOptions{}, nil, false, 5e-3},
		{"jamba", "jamba", func() []byte { return ggufgen.Jamba(5, 4) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, []string{"attn_k", "attn_v"}, false, 5e-3},
		{"falcon-h1", "falcon-h1", func() []byte { return ggufgen.FalconH1(7, 3) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, nil, false, 5e-3},
		{"lfm2", "lfm2", func() []byte { return ggufgen.LFM2(8, 4) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, nil, false, 5e-3},
		{"falcon-h1, whole", "falcon-h1", func() []byte { return ggufgen.FalconH1(7, 3) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, nil, true, 5e-3},
		{"plain, whole", "llama", func() []byte { return ggufgen.LLaMA(1, 3, 64) }, llama.ContextOptions{CacheK: f32, CacheV: f32}, nil, true, 5e-3},
	}
	t.Logf("DORMOUSE_HOST_SEED=%d", seed)
	total := 0
	for i, m := range models {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, m.gguf(), 0o644); err != nil {
				t.Fatal(err)
			}
			h := &host{rig: rigFor(t, lib, api, path, m.opt, db.Options{Codec: quant.Raw}), ctx: context.Background(), opaque: m.opaque, tolerance: m.tolerance,
				cold: map[string][]float32{}, count: map[string]int{}, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			h.hostCalls = h.rig.hostCalls()
			h.adapters(t, path, m.arch, m.adapters)
			h.renew()
			for h.count["audits"] < (audits+len(models)-1)/len(models) {
				if h.count["steps"]++; h.count["steps"] > 100*audits+2000 {
					t.Fatalf("too few audits: %s", h.report())
				}
				h.step()
			}
			h.control()
			t.Log(h.report())
			total += h.count["audits"]
			if refused, stored := h.count["sound rows refused"], h.count["stored"]; refused > stored/4 {
				t.Errorf("%d of %d saves of sound rows were refused", refused, refused+stored)
			}
		})
	}
	t.Logf("%d audits", total)
}
