//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// said is an identity that says the same whatever the model is.
func said(o *llamacpp.Options) {
	o.Identity = llamacpp.Identity{Weights: kv.HashOf("weights"), Tokenizer: kv.HashOf("tokenizer")}
}

// attachTo is Attach with that identity.
func attachTo(store *db.Store, api *llamacpp.Library, c *llama.Context) (float64, error) {
	o := llamacpp.Options{Decode: c.Decode, Logger: kit.Quiet}
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

// TestCanaryMatrix: whatever makes a context compute other rows is refused, and whatever does not is accepted, with room between the
// largest difference that is accepted and the least that is refused.
func TestCanaryMatrix(t *testing.T) {
	lib, api := library(t)
	least, most := math.Inf(1), 0.0
	var others []elsewhere
	stores := memdir.Dir(t)
	for i, x := range canaryCases(t) {
		t.Run(x.name, func(t *testing.T) {
			r := rigFor(t, lib, api, x.path, x.opt, db.Options{})
			if err := r.store.Close(); err != nil {
				t.Fatal(err)
			}
			r.store = kit.OpenStoreAt(t, filepath.Join(stores, fmt.Sprint(i)), db.Options{}) // outlives this part
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
				m := loadModel(t, lib, x.other, false)
				d, err := attachTo(r.store, api, newContext(t, m, base))
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
			m := loadModel(t, lib, x.path, true)
			d, err := attachTo(r.store, api, newContext(t, m, base))
			try("weights not repacked", false, d, err)
			if x.rotated {
				c := unrotated(r.context)
				d, err := attachTo(r.store, api, c)
				says := api.Version() >= "0.6" // then it is another model, whose canary this is the first of
				try("rotation by environment", !says, d, err)
			}
			if !strings.Contains(x.name, "amba") && x.arch != "qwen2vl" {
				others = append(others, elsewhere{Name: x.name, Store: r.store.Dir(), Model: x.path, Cache: x.opt.CacheK})
			}
			t.Log(strings.Join(line, ", "))
		})
	}
	if lib := os.Getenv("DORMOUSE_LLAMA_LIB_OTHER"); lib != "" {
		for i, d := range inChild(t, others, "DORMOUSE_LLAMA_LIB="+lib) {
			t.Logf("%s: other release %.2g", others[i].Name, d)
			most = max(most, d)
		}
	}
	t.Logf("accepted: up to %.3g, refused: from %.3g on", most, least)
}
