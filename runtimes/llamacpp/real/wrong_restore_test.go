//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// Whatever is wrong with a context or a sequence: what is restored has the logits of a cold run in the same context, or is no further from
// them than other batches are; or it is refused. -v prints a line for each fault: who refuses it, or how far the logits are off, and how far other batches.
func TestNoWrongRestore(t *testing.T) {
	lib, api := library(t)
	for _, x := range wrongRestoreCases(t) {
		t.Run(x.name, func(t *testing.T) {
			f := newField(t, lib, api, x)
			table := fmt.Sprintf("%s\n", x.name)
			cell := func(name string, v verdict) { table += fmt.Sprintf("    %-45s %v\n", name, v) }
			defer func() { t.Log(table) }()
			for _, fault := range f.contextFaults(lib) {
				for _, back := range []bool{false, true} { // the fault comes after the save, or the save is the fault
					if back && testing.Short() {
						continue
					}
					f.fresh()
					name, before, after := fault.name, f.plain, fault.make
					if back {
						name, before, after = name+", the other way round", after, before
					}
					c := before()
					f.fill(c)
					c.Close()
					what := name
					if back {
						what = "plain"
					}
					v := f.worst(what, after, f.tokens)
					if v.Off > v.Floor && !(f.x.rotated && v.Warned && v.Off < 0.005) { // a quantized cache rounds rows as much as a weak adapter changes them
						t.Errorf("%s: %v", name, v)
					}
					if fault.noRows && v.Tokens == 0 {
						t.Errorf("%s changes no row, and %v", name, v)
					}
					cell(name, v)
					switch d := f.matters(fault); {
					case d == 0 != fault.same:
						t.Errorf("%s changes the logits by %.3g", fault.name, d)
					case fault.same && v.Tokens == 0:
						t.Errorf("%s changes nothing in this model, and %v", name, v)
					}
				}
			}
			f.control(cell)
			for _, fault := range f.sequenceFaults() {
				f.fresh()
				c := f.plain()
				s, err := f.attach(c)
				f.must(err)
				prompts, err := fault.do(s, c, f.memory(c))
				c.Close()
				v := verdict{Refused: refusal(err)}
				switch {
				case errors.Is(err, errNotDone):
					v.Refused = "not done by llama.cpp"
				case v.Refused == "":
					f.must(err)
				}
				if fault.wanted && v.Refused != "" && !errors.Is(err, errNotDone) {
					t.Errorf("%s: %v", fault.name, err)
				}
				for i, prompt := range prompts { // of a save that was refused, nothing may be found either
					w := f.tried("plain", f.plain, prompt)
					if v.Refused == "" {
						v = v.worse(w)
					}
					if i == 0 && fault.wanted && w.Tokens < firstSave {
						t.Errorf("%s: %d tokens are restored", fault.name, w.Tokens)
					}
				}
				cell(fault.name, v)
			}
		})
	}
}

// control shows that a wrong restore would be seen: with the canary taken out of the store, what is restored is off.
func (f *field) control(cell func(string, verdict)) {
	f.t.Helper()
	if !f.x.rope {
		return
	}
	f.fresh()
	c := f.plain()
	f.fill(c)
	s, err := f.attach(c)
	f.must(err)
	f.must(s.Model().SetNote(f.ctx, "llamacpp canary", nil))
	c.Close()
	make := f.made(func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale = ref(int32(1)), 0.5 })
	v := f.compared("linear scale 0.5", make, slices.Concat(f.tokens, randomTokens(99, 24)))
	cell("(linear scale 0.5 without a canary)", v)
	if v.Tokens == 0 || v.Off <= 10*v.Floor {
		f.t.Errorf("negative control: %v", v)
	}
}

// wrongRestoreCases are at least one model of every architecture, all kinds of states among them.
func wrongRestoreCases(t *testing.T) (out []canaryCase) {
	q8 := ref(llama.Q8_0)
	for _, x := range []struct {
		name, arch string
		gguf       func(seed uint64) []byte
		cache      *llama.CacheType
		rope       bool
		adapter    []string
	}{
		{"llama", "llama", func(s uint64) []byte { return ggufgen.LLaMA(s, 3, 64) }, nil, true, []string{"attn_k", "attn_v"}},
		{"llama q8_0", "llama", func(s uint64) []byte { return ggufgen.LLaMA(s, 3, 64) }, q8, true, []string{"attn_k", "attn_v"}},
		{"gemma3", "gemma3", func(s uint64) []byte { return ggufgen.Gemma3(s, 7, 64, 40) }, nil, true, []string{"attn_k", "attn_v"}},
		{"gemma3 q8_0, all cells kept", "gemma3", func(s uint64) []byte { return ggufgen.Gemma3(s, 7, 64, 40) }, q8, true, []string{"attn_k", "attn_v"}},
		{"deepseek2", "deepseek2", func(s uint64) []byte { return ggufgen.DeepSeek2(s, 3) }, nil, true, []string{"ffn_down"}},
		{"qwen2vl", "qwen2vl", func(s uint64) []byte { return ggufgen.Qwen2VL(s, 3) }, nil, true, []string{"attn_k", "attn_v"}},
		{"mamba", "mamba", func(s uint64) []byte { return ggufgen.Mamba(s, 3) }, nil, false, []string{"ssm_in"}},
		{"jamba", "jamba", func(s uint64) []byte { return ggufgen.Jamba(s, 4) }, nil, false, []string{"attn_k", "attn_v", "ssm_in"}},
		{"falcon-h1", "falcon-h1", func(s uint64) []byte { return ggufgen.FalconH1(s, 3) }, nil, true, []string{"attn_k", "attn_v", "ssm_in"}},
		{"lfm2", "lfm2", func(s uint64) []byte { return ggufgen.LFM2(s, 4) }, nil, true, []string{"attn_k", "attn_v"}},
	} {
		c := canaryCase{name: x.name, arch: x.arch, rope: x.rope, rotated: x.cache != nil}
		c.path, c.other = kit.WriteFile(t, x.name+".gguf", x.gguf(1)), kit.WriteFile(t, x.name+" other.gguf", x.gguf(2))
		c.opt.CacheK, c.opt.CacheV, c.opt.FullWindow = x.cache, x.cache, x.name == "gemma3 q8_0, all cells kept"
		c.adapters(t, x.adapter)
		out = append(out, c)
	}
	trained := canaryCase{name: "stories260K", path: stories, arch: "llama", rope: true}
	trained.adapters(t, []string{"attn_k", "attn_v"})
	return append(out, trained)
}
