//go:build (linux && !android) || (darwin && !ios)

package llamacpp_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

func library(t testing.TB) (*llama.Lib, *llamacpp.Library) {
	t.Helper()
	dir := os.Getenv("DORMOUSE_LLAMA_LIB")
	if dir == "" {
		t.Skip("SKIPPED, llama.cpp is not tried: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	loaded.Do(func() {
		if loaded.lib, loaded.err = llama.Load(dir); loaded.err == nil {
			loaded.api, loaded.err = llamacpp.Bind(loaded.lib.Lookup)
		}
	})
	if loaded.err != nil {
		t.Fatal(loaded.err)
	}
	return loaded.lib, loaded.api
}

const batchTokens = 32

// architecture is a kind of model and of cache.
type architecture struct {
	name    string
	gguf    func() []byte
	context llama.ContextOptions
	mode    llamacpp.Mode
}

func ref[T any](v T) *T { return &v }

func architectures() []architecture {
	plain := func() []byte { return ggufgen.LLaMA(1, 3, 64) }
	window := func() []byte { return ggufgen.Gemma3(2, 7, 64, 40) }
	hybrid := func() []byte { return ggufgen.Jamba(5, 4) }
	q8 := llama.Q8_0
	return []architecture{
		{"plain", plain, llama.ContextOptions{FlashAttention: ref(true)}, llamacpp.Rows},
		{"plain, no flash attention", plain, llama.ContextOptions{FlashAttention: ref(false)}, llamacpp.Rows},
		{"plain, q8_0", plain, llama.ContextOptions{FlashAttention: ref(true), CacheK: &q8, CacheV: &q8}, llamacpp.Rows},
		{"plain, q8_0 K only", plain, llama.ContextOptions{FlashAttention: ref(false), CacheK: &q8}, llamacpp.Rows},
		{"plain, q4_0", plain, llama.ContextOptions{FlashAttention: ref(true), CacheK: ref(llama.Q4_0), CacheV: ref(llama.Q4_0)}, llamacpp.Rows},
		{"plain, bf16", plain, llama.ContextOptions{CacheK: ref(llama.BF16), CacheV: ref(llama.BF16)}, llamacpp.Rows},
		{"plain, f32", plain, llama.ContextOptions{CacheK: ref(llama.F32), CacheV: ref(llama.F32)}, llamacpp.Rows},
		{"plain, two streams", plain, llama.ContextOptions{Sequences: 2}, llamacpp.Rows},
		{"plain, two sequences in one buffer", plain, llama.ContextOptions{Sequences: 2, Unified: true}, llamacpp.Rows},
		{"window", window, llama.ContextOptions{FlashAttention: ref(true)}, llamacpp.Rows},
		{"window, no flash attention", window, llama.ContextOptions{FlashAttention: ref(false)}, llamacpp.Rows},
		{"window, q8_0", window, llama.ContextOptions{FlashAttention: ref(true), CacheK: &q8, CacheV: &q8}, llamacpp.Rows},
		{"window, all cells kept", window, llama.ContextOptions{FullWindow: true}, llamacpp.Rows},
		{"window, two streams", window, llama.ContextOptions{Sequences: 2}, llamacpp.Rows},
		{"latent (deepseek2)", func() []byte { return ggufgen.DeepSeek2(3, 3) }, llama.ContextOptions{}, llamacpp.Rows},
		{"recurrent (mamba)", func() []byte { return ggufgen.Mamba(4, 2) }, llama.ContextOptions{}, llamacpp.Opaque},
		{"hybrid (jamba)", hybrid, llama.ContextOptions{}, llamacpp.Hybrid},
		{"hybrid, no flash attention", hybrid, llama.ContextOptions{FlashAttention: ref(false)}, llamacpp.Hybrid},
		{"hybrid, q8_0", hybrid, llama.ContextOptions{FlashAttention: ref(true), CacheK: &q8, CacheV: &q8}, llamacpp.Hybrid},
		{"hybrid, two streams", hybrid, llama.ContextOptions{Sequences: 2}, llamacpp.Hybrid},
		{"hybrid, two sequences in one buffer", hybrid, llama.ContextOptions{Sequences: 2, Unified: true}, llamacpp.Hybrid},
		{"hybrid in every layer (falcon-h1)", func() []byte { return ggufgen.FalconH1(7, 3) }, llama.ContextOptions{}, llamacpp.Hybrid},
		{"hybrid of convolutions (lfm2)", func() []byte { return ggufgen.LFM2(8, 4) }, llama.ContextOptions{}, llamacpp.Hybrid},
		{"recurrent, two sequences", func() []byte { return ggufgen.Mamba(4, 2) }, llama.ContextOptions{Sequences: 2, Unified: true}, llamacpp.Opaque},
		{"M-RoPE (qwen2vl)", func() []byte { return ggufgen.Qwen2VL(6, 2) }, llama.ContextOptions{}, llamacpp.Opaque},
	}
}

// rig is a model with a way to make contexts that are attached to a store.
type rig struct {
	t     testing.TB
	lib   *llama.Lib
	api   *llamacpp.Library
	model *llama.Model
	store *db.Store
	opt   llama.ContextOptions
}

func newRig(t testing.TB, file []byte, o llama.ContextOptions, store db.Options) *rig {
	t.Helper()
	lib, api := library(t)
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	return rigFor(t, lib, api, path, o, store)
}

func rigFor(t testing.TB, lib *llama.Lib, api *llamacpp.Library, path string, o llama.ContextOptions, so db.Options) *rig {
	t.Helper()
	m, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	so.Logger = slog.New(slog.DiscardHandler)
	store, err := db.Open(context.Background(), t.TempDir(), so)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, lib: lib, api: api, model: m, store: store}
	t.Cleanup(func() {
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
		m.Close()
	})
	if o.Tokens == 0 {
		o.Tokens = 512 * max(1, o.Sequences)
	}
	if o.Batch == 0 {
		o.Batch, o.MicroBatch = batchTokens, batchTokens
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	r.opt = o
	return r
}

func (r *rig) context() *llama.Context {
	r.t.Helper()
	c, err := r.model.NewContext(r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

func (r *rig) attach(c *llama.Context, change func(*llamacpp.Options)) *llamacpp.Session {
	r.t.Helper()
	o := llamacpp.Options{
		Identity: llamacpp.Identity{Path: r.model.Path(), Memo: filepath.Join(r.store.Dir(), "..", "memo")},
		Decode:   c.Decode,
		Logger:   slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	s, err := llamacpp.Attach(context.Background(), r.store, r.api, c.Pointer(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// prefilled gives the logits of a prompt that Prefill evaluates from its start.
func (r *rig) prefilled(prompt kv.Prompt, sequence int) []float32 {
	r.t.Helper()
	c := r.context()
	defer c.Close()
	if err := r.attach(c, nil).Prefill(context.Background(), prompt, 0, sequence); err != nil {
		r.t.Fatal(err)
	}
	return c.Logits(-1)
}

// evaluated gives the logits of a prompt that is evaluated from its start, in batches of that size.
func (r *rig) evaluated(prompt kv.Prompt, batch, sequence int) []float32 {
	r.t.Helper()
	c := r.context()
	defer c.Close()
	for i := 0; i < len(prompt.Tokens); i += batch {
		if err := c.Decode(prompt.Tokens[i:min(i+batch, len(prompt.Tokens))], i, sequence); err != nil {
			r.t.Fatal(err)
		}
	}
	return c.Logits(-1)
}

// difference is the largest difference of two logits, relative to how far the first ones spread.
func difference(want, got []float32) float64 { return logits.Difference(want, got) }

func randomTokens(seed, n int) []kv.Token {
	out := make([]kv.Token, n)
	x := uint32(seed)*2654435761 + 1
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = kv.Token(x>>8) % ggufgen.Vocabulary
	}
	return out
}

// tryAttach is rig.attach, but hands the error out.
func (r *rig) tryAttach(c *llama.Context, change func(*llamacpp.Options)) (*llamacpp.Session, error) {
	o := llamacpp.Options{
		Identity: llamacpp.Identity{Path: r.model.Path(), Memo: filepath.Join(r.store.Dir(), "..", "memo")},
		Decode:   c.Decode, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	return llamacpp.Attach(context.Background(), r.store, r.api, c.Pointer(), o)
}

// prefilled evaluates a prompt and saves it.
func prefilled(t *testing.T, s *llamacpp.Session, p kv.Prompt) {
	t.Helper()
	if err := s.Prefill(context.Background(), p, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(context.Background(), p, 0); err != nil {
		t.Fatal(err)
	}
}

// lora is llama.cpp's adapter interface, which no binding of ours has.
type lora struct {
	load func(model uintptr, path string) uintptr
	set  func(c uintptr, adapters *uintptr, n uintptr, scales *float32) int32
}

func (r *rig) lora() lora {
	r.t.Helper()
	var l lora
	for name, f := range map[string]any{"llama_adapter_lora_init": &l.load, "llama_set_adapters_lora": &l.set} {
		at, err := r.lib.Lookup(name)
		if err != nil {
			r.t.Skipf("SKIPPED: the library has no %s", name)
		}
		purego.RegisterFunc(f, at)
	}
	return l
}

func (l lora) on(t testing.TB, r *rig, c *llama.Context, b []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lora.gguf")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	adapter, scale := l.load(r.model.Pointer(), path), float32(1)
	if adapter == 0 || l.set(c.Pointer(), &adapter, 1, &scale) != 0 {
		t.Fatal("no adapter")
	}
}

// memoryOf calls what the package itself does not.
type memoryOf struct {
	remove   func(memory uintptr, sequence, from, to int32) bool
	add      func(memory uintptr, sequence, from, to, delta int32)
	canShift func(memory uintptr) bool
	memory   uintptr
}

func (r *rig) memory(c *llama.Context) *memoryOf {
	r.t.Helper()
	m := &memoryOf{memory: r.api.GetMemory(c.Pointer()), remove: r.api.SequenceRemove}
	for name, f := range map[string]any{"llama_memory_seq_add": &m.add, "llama_memory_can_shift": &m.canShift} {
		address, err := r.lib.Lookup(name)
		if err != nil {
			r.t.Fatal(err)
		}
		purego.RegisterFunc(f, address)
	}
	return m
}

// shift is what programs do whose context is full.
func (m *memoryOf) shift(from, to int) {
	m.remove(m.memory, 0, int32(from), int32(to))
	m.add(m.memory, 0, int32(to), -1, int32(from-to))
}

func (r *rig) decode(c *llama.Context, tokens []kv.Token, from, batch int) {
	r.t.Helper()
	for ; from < len(tokens); from += batch {
		if err := c.Decode(tokens[from:min(len(tokens), from+batch)], from, 0); err != nil {
			r.t.Fatal(err)
		}
	}
}

// realModel is the path of Gemma 3 270M.
func realModel(t testing.TB) string {
	t.Helper()
	path := os.Getenv("DORMOUSE_LLAMA_MODEL")
	if path == "" {
		t.Skip("SKIPPED, no real model is tried: DORMOUSE_LLAMA_MODEL is not set; tests/llama/fetch.sh fetches Gemma 3 270M")
	}
	if testing.Short() {
		t.Skip("SKIPPED, no real model is tried: -short")
	}
	return path
}

// realTokens are the first n tokens of a real English text.
func realTokens(t testing.TB, m *llama.Model, n int) []kv.Token {
	t.Helper()
	b, err := os.ReadFile("testdata/opticks.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := m.Tokenize(string(b), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) < n {
		t.Fatalf("the text has %d tokens, expected %d", len(tokens), n)
	}
	return tokens[:n]
}

// withStore is the same model with a store of its own.
func (r *rig) withStore(o db.Options) *rig {
	r.t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	store, err := db.Open(context.Background(), r.t.TempDir(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			r.t.Error(err)
		}
	})
	q := *r
	q.store = store
	return &q
}
