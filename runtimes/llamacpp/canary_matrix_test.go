//go:build (linux && !android) || (darwin && !ios)

package llamacpp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// canaryCase is a model with a kind of cache.
type canaryCase struct {
	name         string
	path         string
	other        string // weights of the same shape; empty: none
	arch         string
	opt          llama.ContextOptions
	rope         bool // positions are rotated into K
	rotated      bool // llama.cpp rotates the cache
	coarse       bool // weights or cache are of so few bits that rounding moves rows as much as a weak adapter does
	targets      []ggufgen.LoRATarget
	queries      []ggufgen.LoRATarget
	loraStrength float32
}

// canaryCases are models with random weights in all kinds of caches, and the trained ones that are at hand.
func canaryCases(t *testing.T) (out []canaryCase) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	type kind struct {
		name, arch string
		gguf       func(seed uint64) []byte
		rope       bool
		layers     []string // what an adapter can change
	}
	kvq := []string{"attn_k", "attn_v"}
	kinds := []kind{
		{"llama", "llama", func(s uint64) []byte { return ggufgen.LLaMA(s, 3, 64) }, true, kvq},
		{"llama, heads of 40", "llama", func(s uint64) []byte { return ggufgen.LLaMA(s, 4, 32) }, true, kvq},
		{"gemma3", "gemma3", func(s uint64) []byte { return ggufgen.Gemma3(s, 7, 64, 40) }, true, kvq},
		{"deepseek2", "deepseek2", func(s uint64) []byte { return ggufgen.DeepSeek2(s, 3) }, true, nil},
		{"qwen2vl", "qwen2vl", func(s uint64) []byte { return ggufgen.Qwen2VL(s, 3) }, true, kvq},
		{"mamba", "mamba", func(s uint64) []byte { return ggufgen.Mamba(s, 3) }, false, nil},
		{"jamba", "jamba", func(s uint64) []byte { return ggufgen.Jamba(s, 4) }, false, nil},
	}
	caches := []struct {
		name string
		typ  *llama.CacheType
	}{{"f16", nil}, {"bf16", ref(llama.BF16)}, {"f32", ref(llama.F32)}, {"q8_0", ref(llama.Q8_0)}, {"q4_0", ref(llama.Q4_0)}}
	for i, k := range kinds {
		path := write(fmt.Sprint(i, "a.gguf"), k.gguf(1))
		other := write(fmt.Sprint(i, "b.gguf"), k.gguf(2))
		for j, cache := range caches {
			if j > 0 && !slices.Contains([]string{"llama", "gemma3"}, k.name) {
				continue
			}
			c := canaryCase{name: k.name + " " + cache.name, path: path, other: other, arch: k.arch, rope: k.rope, loraStrength: 0.5}
			c.opt.CacheK, c.opt.CacheV = cache.typ, cache.typ
			c.rotated, c.coarse = j >= 3, j == 4
			c.adapters(t, k.layers)
			out = append(out, c)
		}
	}
	for _, x := range []struct{ name, env, arch string }{{"stories260K", "", "llama"}, {"SmolLM2-135M", "DORMOUSE_LLAMA_SMOL", "llama"}, {"Gemma 3 270M", "DORMOUSE_LLAMA_MODEL", "gemma3"}} {
		path := filepath.Join("testdata", "stories260K-f32.gguf")
		if x.env != "" {
			if path = os.Getenv(x.env); path == "" || testing.Short() {
				continue
			}
		}
		for j, cache := range caches {
			if j == 1 || j == 2 || j > 2 && x.env == "" { // stories260K has heads of 8
				continue
			}
			c := canaryCase{name: x.name + " " + cache.name, path: path, arch: x.arch, rope: true, loraStrength: 0.5}
			c.opt.CacheK, c.opt.CacheV = cache.typ, cache.typ
			c.rotated, c.coarse = j >= 3, x.env != ""
			c.adapters(t, kvq)
			out = append(out, c)
		}
	}
	return out
}

// adapters finds out what an adapter of the model can change.
func (c *canaryCase) adapters(t *testing.T, names []string) {
	if len(names) == 0 {
		return
	}
	f, err := gguf.Open(c.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors {
		parts := strings.Split(x.Name, ".")
		if len(parts) != 4 || parts[0] != "blk" || parts[3] != "weight" {
			if len(parts) != 4 {
				parts = append(parts, "", "", "", "")
			}
		}
		target := ggufgen.LoRATarget{Name: x.Name, In: int(x.Dims[0])}
		if len(x.Dims) > 1 {
			target.Out = int(x.Dims[1])
		}
		switch {
		case parts[0] == "blk" && parts[3] == "weight" && slices.Contains(names, parts[2]):
			c.targets = append(c.targets, target)
		case parts[0] == "blk" && parts[3] == "weight" && parts[2] == "attn_q":
			c.queries = append(c.queries, target)
		}
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

// said is an identity that says the same whatever the model is.
func said(o *llamacpp.Options) {
	o.Identity = llamacpp.Identity{Weights: kv.HashOf("weights"), Tokenizer: kv.HashOf("tokenizer")}
}

// attachTo is Attach with that identity.
func attachTo(store *db.Store, api *llamacpp.Library, c *llama.Context) (float64, error) {
	o := llamacpp.Options{Decode: c.Decode, Logger: slog.New(slog.DiscardHandler)}
	said(&o)
	s, err := llamacpp.Attach(context.Background(), store, api, c.Pointer(), o)
	var bad *llamacpp.IdentityError
	switch {
	case errors.As(err, &bad):
		return bad.Difference, err
	case err != nil:
		return math.NaN(), err
	}
	return s.Deviation(), nil
}

// queryAdapter is an adapter that changes no K or V itself: only what attention makes of them, which is the input of the layers behind.
type queryAdapter struct {
	name    string
	targets []ggufgen.LoRATarget
	last    bool // of the last layer only: no row changes
	late    bool // few rows do
}

func (c *canaryCase) queryAdapters() (out []queryAdapter) {
	switch len(c.queries) {
	case 0:
		return nil
	case 1: // of a hybrid
		return []queryAdapter{{name: "queries", targets: c.queries}}
	}
	q := slices.Clone(c.queries)
	layer := func(t ggufgen.LoRATarget) (n int) {
		fmt.Sscanf(t.Name, "blk.%d.", &n)
		return n
	}
	slices.SortFunc(q, func(a, b ggufgen.LoRATarget) int { return layer(a) - layer(b) })
	n := len(q)
	return []queryAdapter{
		{name: "queries", targets: q},
		{name: "queries of the first layer", targets: q[:1]},
		{name: "queries of the last layer but one", targets: q[n-2 : n-1], late: true},
		{name: "queries of the last layer", targets: q[n-1:], last: true},
	}
}

// TestCanaryMatrix: whatever makes a context compute other rows is refused, and whatever does not is accepted, with room between the
// largest difference that is accepted and the least that is refused.
func TestCanaryMatrix(t *testing.T) {
	lib, api := library(t)
	least, most := math.Inf(1), 0.0
	for _, x := range canaryCases(t) {
		t.Run(x.name, func(t *testing.T) {
			r := rigFor(t, lib, api, x.path, x.opt, db.Options{})
			base := r.opt
			if d, err := attachTo(r.store, api, r.context()); err != nil || d != 0 {
				t.Fatal(d, err)
			}
			var line []string
			try := func(name string, refused bool, d float64, err error) {
				t.Helper()
				line = append(line, fmt.Sprintf("%s %.2g", name, d))
				switch {
				case refused != errors.Is(err, llamacpp.ErrIdentity) || !refused && err != nil:
					t.Errorf("%s: differs by %.3g: %v", name, d, err)
				case refused:
					least = min(least, d)
				default:
					most = max(most, d)
				}
			}
			with := func(name string, refused bool, change func(o *llama.ContextOptions)) {
				t.Helper()
				o := base
				change(&o)
				c, err := r.model.NewContext(o)
				if err != nil {
					t.Logf("%s: %v", name, err)
					return
				}
				defer c.Close()
				d, err := attachTo(r.store, api, c)
				try(name, refused, d, err)
			}
			with("threads 2", false, func(o *llama.ContextOptions) { o.Threads = 2 })
			with("batch 512", false, func(o *llama.ContextOptions) { o.Batch, o.MicroBatch = 512, 512 })
			with("batch 1", false, func(o *llama.ContextOptions) { o.Batch, o.MicroBatch = 1, 1 })
			with("ctx 256", false, func(o *llama.ContextOptions) { o.Tokens = 256 })
			with("ctx 2048", false, func(o *llama.ContextOptions) { o.Tokens = 2048 })
			with("swa_full", false, func(o *llama.ContextOptions) { o.FullWindow = true })
			if opaque := slices.Contains([]string{"qwen2vl f16", "mamba f16"}, x.name); !opaque { // else another identity
				with("4 sequences", false, func(o *llama.ContextOptions) { o.Sequences, o.Tokens = 4, 2048 })
				with("4 sequences, unified", false, func(o *llama.ContextOptions) { o.Sequences, o.Tokens, o.Unified = 4, 2048, true })
				with("flash attention", false, func(o *llama.ContextOptions) { o.FlashAttention = ref(true) })
				with("no flash attention", false, func(o *llama.ContextOptions) { o.FlashAttention = ref(false) })
			}
			if x.rope {
				with("linear scale 0.5", true, func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale = ref(int32(1)), 0.5 })
				with("linear scale 0.9", true, func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale = ref(int32(1)), 0.9 })
				with("YaRN 4x", true, func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale, o.YarnOrig = ref(int32(2)), 0.25, 128 })
				with("YaRN 2x", true, func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale, o.YarnOrig = ref(int32(2)), 0.5, 1024 })
				with("base 5000", true, func(o *llama.ContextOptions) { o.RopeBase = 5000 })
				with("base 20000", true, func(o *llama.ContextOptions) { o.RopeBase = 20000 })
				if x.arch != "deepseek2" && x.arch != "qwen2vl" && !strings.HasPrefix(x.name, "stories") { // whose tokens attend to themselves
					with("not causal", true, func(o *llama.ContextOptions) { o.Attention = ref(int32(1)) })
				}
			}
			if x.other != "" {
				m, err := lib.LoadModel(x.other, llama.ModelOptions{CPUOnly: true})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				c, err := m.NewContext(base)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				d, err := attachTo(r.store, api, c)
				try("other weights", true, d, err)
			}
			if len(x.targets) > 0 {
				c := r.context()
				r.lora().on(t, r, c, ggufgen.LoRA(x.arch, 7, x.loraStrength, x.targets...))
				d, err := attachTo(r.store, api, c)
				try("adapter", true, d, err)
			}
			for _, q := range x.queryAdapters() {
				c := r.context()
				r.lora().on(t, r, c, ggufgen.LoRA(x.arch, 7, x.loraStrength, q.targets...))
				d, err := attachTo(r.store, api, c)
				c.Close()
				switch {
				case q.last:
					try(q.name, false, d, err)
				case x.coarse || x.rotated && q.late: // about as much as rounding to 8 bits
					line = append(line, fmt.Sprintf("(%s %.2g)", q.name, d))
				default:
					try(q.name, true, d, err)
				}
			}
			plainKernels := func() {
				m, err := lib.LoadModel(x.path, llama.ModelOptions{CPUOnly: true, NoRepack: true})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				c, err := m.NewContext(base)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				d, err := attachTo(r.store, api, c)
				try("weights not repacked", false, d, err)
			}
			plainKernels()
			dir := r.store.Dir()
			if err := r.store.Close(); err != nil {
				t.Fatal(err)
			}
			if x.rotated {
				d, err := inChild(t, dir, x, "LLAMA_ATTN_ROT_DISABLE=1")
				says := api.Version() >= "0.6" // then it is another model, whose canary this is the first of
				try("rotation by environment", !says, d, err)
			}
			if other := os.Getenv("DORMOUSE_LLAMA_LIB_OTHER"); other != "" && !strings.Contains(x.name, "amba") && x.arch != "qwen2vl" {
				d, err := inChild(t, dir, x, "DORMOUSE_LLAMA_LIB="+other)
				try("other release", false, d, err)
			}
			var err error
			if r.store, err = db.Open(context.Background(), dir, db.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Fatal(err)
			}
			t.Log(strings.Join(line, ", "))
		})
	}
	t.Logf("accepted: up to %.3g, refused: from %.3g on", most, least)
}

// inChild attaches in another process.
func inChild(t *testing.T, store string, x canaryCase, env ...string) (float64, error) {
	t.Helper()
	cache := -1
	if x.opt.CacheK != nil {
		cache = int(*x.opt.CacheK)
	}
	args := []string{os.Args[0], "-test.run=^TestCanaryChild$", "-test.v"}
	if self, err := os.Executable(); err == nil && strings.HasPrefix(filepath.Base(self), "ld-linux") { // tests/llama/releases.sh
		args = append([]string{self, "--library-path", filepath.Dir(self)}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(append(os.Environ(), "DORMOUSE_CANARY_STORE="+store, "DORMOUSE_CANARY_MODEL="+x.path, fmt.Sprint("DORMOUSE_CANARY_CACHE=", cache)), env...)
	out, err := c.CombinedOutput()
	_, said, ok := strings.Cut(string(out), "CANARY ")
	if !ok {
		t.Fatalf("child: %v\n%s", err, out)
	}
	var d float64
	var refused bool
	if _, err := fmt.Sscan(said, &d, &refused); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	if refused {
		return d, llamacpp.ErrIdentity
	}
	return d, nil
}

// TestCanaryChild is that process. The variable that it was started with is not there any more when it attaches.
func TestCanaryChild(t *testing.T) {
	path := os.Getenv("DORMOUSE_CANARY_MODEL")
	if path == "" {
		t.Skip("runs in a child process only")
	}
	lib, api := library(t)
	m, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	o := llama.ContextOptions{Tokens: 512, Batch: batchTokens, MicroBatch: batchTokens, Threads: 1}
	if v := os.Getenv("DORMOUSE_CANARY_CACHE"); v != "-1" {
		var typ int32
		fmt.Sscan(v, &typ)
		o.CacheK, o.CacheV = ref(llama.CacheType(typ)), ref(llama.CacheType(typ))
	}
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	os.Unsetenv("LLAMA_ATTN_ROT_DISABLE")
	store, err := db.Open(context.Background(), os.Getenv("DORMOUSE_CANARY_STORE"), db.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := attachTo(store, api, c)
	fmt.Println("CANARY", d, errors.Is(err, llamacpp.ErrIdentity), err)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
