//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
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
	for _, k := range kinds {
		path := kit.WriteFile(t, "a.gguf", k.gguf(1))
		other := kit.WriteFile(t, "b.gguf", k.gguf(2))
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
		path := stories
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
