//go:build (linux && !android) || (darwin && !ios)

package llamacpp_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// The tests of this file run stock llama.cpp. tests/llama/fetch.sh gets it and says which variables to set.

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
		{"hybrid (jamba)", func() []byte { return ggufgen.Jamba(5, 4) }, llama.ContextOptions{}, llamacpp.Opaque},
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

// evaluated gives the logits of a prompt that is evaluated from its start, in the batches that s uses.
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
func difference(a, b []float32) (worst float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range a {
		low, high = min(low, float64(a[i])), max(high, float64(a[i]))
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst / (high - low)
}

func randomTokens(seed, n int) []kv.Token {
	out := make([]kv.Token, n)
	x := uint32(seed)*2654435761 + 1
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = kv.Token(x>>8) % ggufgen.Vocabulary
	}
	return out
}

// For every architecture: what is restored continues as if it had been evaluated. With the same batches the logits are
// the same to the last bit, with others close; a row that is spoilt shows.
func TestArchitectures(t *testing.T) {
	library(t)
	for _, arch := range architectures() {
		t.Run(arch.name, func(t *testing.T) {
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			ctx := context.Background()
			first := r.context()
			s := r.attach(first, nil)
			t.Logf("%v: %s", s.Mode(), s.Why())
			if s.Mode() != arch.mode {
				t.Fatalf("mode %v, want %v: %s", s.Mode(), arch.mode, s.Why())
			}
			tokens := randomTokens(1, 300)
			saved := kv.Tokens(tokens...)
			from := 0
			for _, n := range []int{128, 300} { // the first save is what Opaque can be restored at
				if err := s.Prefill(ctx, saved.Prefix(n), from, 0); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Save(ctx, saved, 0); err != nil {
					t.Fatal(err)
				}
				from = n
			}
			batch := s.BatchTokens()
			if d := difference(r.evaluated(saved, batch, 0), first.Logits(-1)); d != 0 {
				t.Errorf("saving changes the logits by %g", d)
			}
			inexact := 0.0
			for _, shared := range []int{300, 299, 288, 200, 128, 97, 64, 16} {
				tail := randomTokens(shared, 40)
				tail[0] = (tokens[min(shared, 299)] + 1) % ggufgen.Vocabulary
				prompt := kv.Tokens(append(append([]kv.Token(nil), tokens[:shared]...), tail...)...)
				want := shared
				if arch.mode == llamacpp.Opaque {
					want = 0
					for _, n := range []int{128, 300} {
						if n <= shared {
							want = n
						}
					}
				}
				sequence := max(0, min(1, arch.context.Sequences-1))
				c := r.context()
				s := r.attach(c, nil)
				got, err := s.Restore(ctx, prompt, sequence)
				if err != nil {
					t.Fatalf("restore of %d: %v", shared, err)
				}
				if got.Tokens != want {
					t.Fatalf("restored %d tokens, want %d of %d shared: %v", got.Tokens, want, shared, got.Reason)
				}
				if err := s.Prefill(ctx, prompt, got.Tokens, sequence); err != nil {
					t.Fatal(err)
				}
				d := difference(r.evaluated(prompt, batch, sequence), c.Logits(-1))
				// A window's cells are a ring. Restored rows lie in other cells of it than evaluated ones, and llama.cpp
				// adds up in the order of cells.
				ring := s.Model().Descriptor().Groups[len(s.Model().Descriptor().Groups)-1].Kind == kv.Window && !arch.context.FullWindow
				if got.Tokens%batch == 0 && d != 0 && !ring {
					t.Errorf("restored %d tokens: logits differ by %g of their spread", got.Tokens, d)
				}
				if inexact = max(inexact, d); d > 0.005 {
					t.Errorf("restored %d tokens: logits differ by %g of their spread", got.Tokens, d)
				}
				c.Close()
			}
			t.Logf("largest difference: %.2g of the logits' spread", inexact)
			if arch.mode == llamacpp.Rows {
				r.spoilt(ctx, saved, batch)
			}
		})
	}
}

// spoilt is the negative control: one row of zeros in what is restored must show in the logits.
func (r *rig) spoilt(ctx context.Context, prompt kv.Prompt, batch int) {
	r.t.Helper()
	lib := *r.api
	set := lib.StateSet
	spoil := false
	lib.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		if spoil {
			zeroLastRow(r.t, src, n)
		}
		return set(c, src, n, sequence, flags)
	}
	good := r.api
	r.api = &lib
	defer func() { r.api = good }()
	c := r.context()
	defer c.Close()
	s := r.attach(c, nil)
	spoil = true
	got, err := s.Restore(ctx, prompt.Prefix(257), 0)
	if err != nil || got.Tokens != 256 {
		r.t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
	}
	if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
		r.t.Fatal(err)
	}
	if d := difference(r.evaluated(prompt, batch, 0), c.Logits(-1)); d == 0 {
		r.t.Error("negative control: a row of zeros does not change the logits")
	}
}

// Flash attention on and off, one buffer or streams: one fingerprint. Cache types: never the same.
func TestOneModelOneFingerprint(t *testing.T) {
	same := [][]llama.ContextOptions{
		{{FlashAttention: ref(true)}, {FlashAttention: ref(false)}, {Sequences: 2}, {Sequences: 2, Unified: true}, {Tokens: 1024}, {Threads: 2}, {FullWindow: true}},
		{{FlashAttention: ref(true), CacheK: ref(llama.Q8_0)}, {FlashAttention: ref(false), CacheK: ref(llama.Q8_0)}},
		{{CacheK: ref(llama.BF16), CacheV: ref(llama.BF16)}},
		{{CacheK: ref(llama.F32), CacheV: ref(llama.F32)}},
	}
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 2, 64), "window": ggufgen.Gemma3(1, 6, 64, 40)} {
		seen := map[kv.Fingerprint]int{}
		for i, group := range same {
			var fp kv.Fingerprint
			for j, o := range group {
				r := newRig(t, file, o, db.Options{})
				m := r.attach(r.context(), nil).Model()
				d := m.Descriptor()
				if rotated := i == 1; d.Rotated != rotated {
					t.Errorf("%s %v: rotated is %v", name, o, d.Rotated)
				}
				if j == 0 {
					fp = m.Fingerprint()
				} else if m.Fingerprint() != fp {
					t.Errorf("%s: context %d of kind %d has another fingerprint", name, j, i)
				}
			}
			if k, ok := seen[fp]; ok {
				t.Errorf("%s: kinds %d and %d have one fingerprint", name, k, i)
			}
			seen[fp] = i
		}
	}
}

// A release that may or may not rotate a quantized cache is not guessed at.
func TestUnknownRotation(t *testing.T) {
	q8 := llama.Q8_0
	r := newRig(t, ggufgen.LLaMA(1, 2, 64), llama.ContextOptions{FlashAttention: ref(true), CacheK: &q8}, db.Options{})
	old := *r.api
	old.Version = nil
	c := r.context()
	o := llamacpp.Options{Identity: llamacpp.Identity{Path: r.model.Path()}, Decode: c.Decode, Logger: slog.New(slog.DiscardHandler)}
	if _, err := llamacpp.Attach(context.Background(), r.store, &old, c.Pointer(), o); !errors.Is(err, llamacpp.ErrRefused) {
		t.Errorf("not refused: %v", err)
	}
	o.Rotated = ref(false)
	s, err := llamacpp.Attach(context.Background(), r.store, &old, c.Pointer(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Model().Fingerprint() == r.attach(c, nil).Model().Fingerprint() {
		t.Error("rotated and not rotated are one model")
	}
}

// Rows that were saved with flash attention continue without it, and the other way round, as closely as the two agree.
func TestFlashAttentionShares(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(1, 7, 64, 40)} {
		for _, from := range []bool{true, false} {
			r := newRig(t, file, llama.ContextOptions{FlashAttention: &from}, db.Options{Codec: quant.Raw})
			prompt := kv.Tokens(randomTokens(1, 200)...)
			s := r.attach(r.context(), nil)
			if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, prompt, 0); err != nil {
				t.Fatal(err)
			}
			here := r.evaluated(prompt, s.BatchTokens(), 0)
			r.opt.FlashAttention = ref(!from)
			there := r.evaluated(prompt, s.BatchTokens(), 0)
			c := r.context()
			s = r.attach(c, nil)
			got, err := s.Restore(ctx, prompt, 0)
			if err != nil || got.Tokens != 199 {
				t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
			}
			if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
				t.Fatal(err)
			}
			d, noise := difference(there, c.Logits(-1)), difference(there, here)
			t.Logf("%s, saved with flash attention %v: %.2g of the spread; the two differ by %.2g on their own", name, from, d, noise)
			if d > 0.02 {
				t.Errorf("%s: logits differ by %g", name, d)
			}
		}
	}
}

// INT8 on the disk: close, and stated how close.
func TestQuantizedStore(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(1, 7, 64, 40), "latent": ggufgen.DeepSeek2(3, 3)} {
		r := newRig(t, file, llama.ContextOptions{}, db.Options{})
		prompt := kv.Tokens(randomTokens(1, 289)...)
		s := r.attach(r.context(), nil)
		if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
			t.Fatal(err)
		}
		put, err := s.Save(ctx, prompt, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := r.context()
		s = r.attach(c, nil)
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil || got.Tokens != 288 {
			t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
		}
		if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		d := difference(r.evaluated(prompt, s.BatchTokens(), 0), c.Logits(-1))
		desc := s.Model().Descriptor()
		t.Logf("%s: logits differ by %.2g of their spread; %d bytes on disk for %d of rows", name, d, put.Bytes, desc.TokenBytes()*289)
		if name == "latent" && d != 0 {
			t.Error("latents are stored as they are")
		}
		if d > 0.05 {
			t.Errorf("%s: logits differ by %g", name, d)
		}
	}
}

// A store outlives the process that filled it, and a context attaches with tokens in it.
func TestReopen(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, ggufgen.Gemma3(1, 6, 64, 40), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	prompt := kv.Tokens(randomTokens(1, 129)...)
	c := r.context()
	for i := 0; i < 129; i += batchTokens {
		if err := c.Decode(prompt.Tokens[i:min(129, i+batchTokens)], i, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := r.attach(c, func(o *llamacpp.Options) { o.Decode = nil }) // learns from what is there
	if _, err := s.Save(ctx, prompt, 0); err != nil {
		t.Fatal(err)
	}
	dir := r.store.Dir()
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.store, err = db.Open(ctx, dir, db.Options{Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	d := r.context()
	s = r.attach(d, nil)
	got, err := s.Restore(ctx, prompt, 0)
	if err != nil || got.Tokens != 128 {
		t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
	}
	if err := s.Prefill(ctx, prompt, 128, 0); err != nil {
		t.Fatal(err)
	}
	if x := difference(c.Logits(-1), d.Logits(-1)); x != 0 {
		t.Errorf("logits differ by %g", x)
	}
}

// A context that is too small for what is stored gets what fits.
func TestSmallerContext(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 2, 64), "window": ggufgen.Gemma3(1, 6, 64, 40)} {
		r := newRig(t, file, llama.ContextOptions{Tokens: 1024}, db.Options{Codec: quant.Raw})
		prompt := kv.Tokens(randomTokens(1, 900)...)
		s := r.attach(r.context(), nil)
		if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Save(ctx, prompt, 0); err != nil {
			t.Fatal(err)
		}
		for _, sequences := range []int{1, 2} {
			r.opt.Tokens, r.opt.Sequences = 256*sequences, sequences
			c := r.context()
			s := r.attach(c, nil)
			got, err := s.Restore(ctx, prompt, sequences-1)
			if err != nil || got.Tokens != 255 {
				t.Fatalf("%s: restored %d into a context of %d for %d sequences: %v %v", name, got.Tokens, r.opt.Tokens, sequences, got.Reason, err)
			}
			if err := s.Prefill(ctx, prompt.Prefix(256), 255, sequences-1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Other weights of the same shape are another model.
func TestOtherWeightsAreAnotherModel(t *testing.T) {
	r := newRig(t, ggufgen.LLaMA(1, 2, 64), llama.ContextOptions{}, db.Options{})
	q := newRig(t, ggufgen.LLaMA(2, 2, 64), llama.ContextOptions{}, db.Options{})
	a, b := r.attach(r.context(), nil).Model(), q.attach(q.context(), nil).Model()
	if a.Fingerprint() == b.Fingerprint() {
		t.Error("one fingerprint for two models")
	}
	d, e := a.Descriptor(), b.Descriptor()
	if diff := d.Diff(&e); len(diff) != 1 || diff[0].Field != "weights" {
		t.Errorf("they differ in %v", diff)
	}
}

// zeroLastRow spoils the last row of V (or of the latent) in every section of a blob.
func zeroLastRow(t testing.TB, src *byte, n uintptr) {
	blob := bytesAt(src, n)
	f, err := state.Learn(blob, 1)
	if err != nil {
		f, err = state.Learn(blob, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Parse(blob)
	if err != nil {
		t.Fatal(err)
	}
	for i := range st.Sections {
		sec := &st.Sections[i]
		for l := range sec.Layers() {
			tf := f.Sections[i].Layers[l].V
			rows := sec.Rows(l, kv.RoleV)
			if tf.RowBytes == 0 {
				tf, rows = f.Sections[i].Layers[l].K, sec.Rows(l, kv.RoleK)
			}
			d, err := tf.DType()
			if err != nil {
				t.Fatal(err)
			}
			x := kv.Tensor{DType: d, Width: tf.Width()}
			last := rows.Slice(x, rows.End()-1, rows.End()).Pieces[0]
			_, elem := last.Strides(x)
			for j := range tf.Width() / d.Group() {
				clear(last.Mem[j*elem:][:d.GroupBytes()])
			}
		}
	}
}
