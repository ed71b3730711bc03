//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// The tests that call library run stock llama.cpp. tests/llama/fetch.sh gets it and says which variables to set.

var loaded struct {
	sync.Once
	lib *llama.Lib
	api *llamacpp.Library
	err error
}

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
		{"experts (llama)", func() []byte { return ggufgen.Mixtral(9, 3, 64) }, llama.ContextOptions{}, llamacpp.Rows},
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
	return rigFor(t, lib, api, kit.WriteFile(t, "model.gguf", file), o, store)
}

func rigFor(t testing.TB, lib *llama.Lib, api *llamacpp.Library, path string, o llama.ContextOptions, so db.Options) *rig {
	t.Helper()
	r := &rig{t: t, lib: lib, api: api, model: loadModel(t, lib, path, false), store: kit.OpenStoreAt(t, storeDir(t), so)}
	t.Cleanup(func() {
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	r.opt = contextOptions(o)
	return r
}

// storeDir is where a new store goes: in a folder that nobody else has, for a memo beside it.
func storeDir(t testing.TB) string { return filepath.Join(memdir.Dir(t), "store") }

// contextOptions are o, with what they leave out.
func contextOptions(o llama.ContextOptions) llama.ContextOptions {
	if o.Tokens == 0 {
		o.Tokens = 512 * max(1, o.Sequences)
	}
	if o.Batch == 0 {
		o.Batch, o.MicroBatch = batchTokens, batchTokens
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	return o
}

// trained are the models of real files, which are loaded once: contexts do not change them.
var trained = map[string]*llama.Model{}

// loadModel loads a model: one that a test wrote for its length, a trained one for good.
func loadModel(t testing.TB, lib *llama.Lib, path string, noRepack bool) *llama.Model {
	t.Helper()
	key := fmt.Sprint(path, noRepack)
	if m := trained[key]; m != nil {
		return m
	}
	m, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true, NoRepack: noRepack})
	if err != nil {
		t.Fatal(err)
	}
	if path == stories || path == os.Getenv("DORMOUSE_LLAMA_SMOL") || path == os.Getenv("DORMOUSE_LLAMA_MODEL") {
		trained[key] = m
	} else {
		t.Cleanup(m.Close)
	}
	return m
}

// newContext makes a context for the length of the test; it may be closed earlier.
func newContext(t testing.TB, m *llama.Model, o llama.ContextOptions) *llama.Context {
	t.Helper()
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (r *rig) context() *llama.Context {
	r.t.Helper()
	return newContext(r.t, r.model, r.opt)
}

// reopen closes the store and opens it again, with other options.
func (r *rig) reopen(o db.Options) {
	r.t.Helper()
	dir := r.store.Dir()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.store = kit.OpenStoreAt(r.t, dir, o)
}

func (r *rig) attach(c *llama.Context, change func(*llamacpp.Options)) *llamacpp.Session {
	r.t.Helper()
	s, err := r.tryAttach(c, change)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// tryAttach is rig.attach, but hands the error out.
func (r *rig) tryAttach(c *llama.Context, change func(*llamacpp.Options)) (*llamacpp.Session, error) {
	o := llamacpp.Options{
		Identity: llamacpp.Identity{Path: r.model.Path(), Memo: filepath.Join(r.store.Dir(), "..", "memo")},
		Decode:   c.Decode, Logger: kit.Quiet,
	}
	if change != nil {
		change(&o)
	}
	return llamacpp.Attach(context.Background(), r.store, r.api, c.Pointer(), o)
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
	r.decodeIn(c, prompt.Tokens, 0, batch, sequence)
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

// decode evaluates tokens from a position on in sequence 0, in batches of that size.
func (r *rig) decode(c *llama.Context, tokens []kv.Token, from, batch int) {
	r.t.Helper()
	r.decodeIn(c, tokens, from, batch, 0)
}

func (r *rig) decodeIn(c *llama.Context, tokens []kv.Token, from, batch, sequence int) {
	r.t.Helper()
	for ; from < len(tokens); from += batch {
		if err := c.Decode(tokens[from:min(len(tokens), from+batch)], from, sequence); err != nil {
			r.t.Fatal(err)
		}
	}
}

// stories is a trained model of 1 MB that stands in the tree.
const stories = "../testdata/stories260K-f32.gguf"

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
	b, err := os.ReadFile("../testdata/opticks.txt")
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
	store := kit.OpenStoreAt(r.t, storeDir(r.t), o)
	r.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			r.t.Error(err)
		}
	})
	q := *r
	q.store = store
	return &q
}

// withLibrary is the same model called in another way.
func (r *rig) withLibrary(api *llamacpp.Library) *rig {
	q := *r
	q.api = api
	return &q
}
