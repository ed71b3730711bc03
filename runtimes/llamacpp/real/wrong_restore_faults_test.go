//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"errors"
	"os"
	"slices"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// contextFault is a context that computes other rows under the same identity.
type contextFault struct {
	name   string
	make   func() *llama.Context
	same   bool // of this model it is none
	noRows bool // no row is another one, so what is stored is right
}

func (f *field) contextFaults(lib *llama.Lib) (out []contextFault) {
	with := func(name string, change func(o *llama.ContextOptions)) {
		out = append(out, contextFault{name: name, make: f.made(change), same: !f.x.rope})
	}
	with("linear scale 0.5", func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale = ref(int32(1)), 0.5 })
	with("YaRN 4x", func(o *llama.ContextOptions) { o.RopeScaling, o.RopeScale, o.YarnOrig = ref(int32(2)), 0.25, 128 })
	with("frequency base 5000", func(o *llama.ContextOptions) { o.RopeBase = 5000 })
	if f.x.other != "" {
		m := loadModel(f.t, lib, f.x.other, false)
		out = append(out, contextFault{name: "other weights", make: func() *llama.Context { return newContext(f.t, m, f.opt) }})
	}
	adapter := func(name string, targets []ggufgen.LoRATarget, noRows bool) {
		if len(targets) == 0 {
			return
		}
		l, file := f.lora(), ggufgen.LoRA(f.x.arch, 7, 0.5, targets...)
		out = append(out, contextFault{name: name, noRows: noRows, make: func() *llama.Context {
			c := f.plain()
			l.on(f.t, f.rig, c, file)
			return c
		}})
	}
	adapter("forgotten adapter", f.x.targets, false)
	for _, q := range f.x.queryAdapters() {
		adapter("forgotten adapter, "+q.name, q.targets, q.last)
	}
	if f.x.rotated {
		out = append(out, contextFault{name: "rotation by environment", make: func() *llama.Context { return unrotated(f.plain) }})
	}
	return out
}

// unrotated makes a context that does not rotate its cache. When it is attached, what made it so is gone.
func unrotated(make func() *llama.Context) *llama.Context {
	const name = "LLAMA_ATTN_ROT_DISABLE"
	os.Setenv(name, "1") // in C, too
	defer os.Unsetenv(name)
	return make()
}

// matters is how far the logits of a cold run are from those without the fault.
func (f *field) matters(fault contextFault) float64 {
	prompt := slices.Concat(f.tokens, randomTokens(99, 24))
	return difference(f.run("plain", f.plain, prompt, batchTokens), f.run(fault.name, fault.make, prompt, batchTokens))
}

// sequenceFault does something to a context's sequence 0 and saves. It returns the prompts that were said to be saved.
type sequenceFault struct {
	name   string
	wanted bool // to be saved: nothing is wrong with it
	do     func(s *llamacpp.Session, c *llama.Context, m *memoryOf) ([][]kv.Token, error)
}

// errNotDone says that llama.cpp does not do such a thing with this model.
var errNotDone = errors.New("llama.cpp does not")

func (f *field) sequenceFaults() []sequenceFault {
	a := f.tokens
	b := slices.Clone(a)
	const parts = 100
	copy(b[parts:], randomTokens(5, storedTokens-parts))
	other := slices.Clone(a)
	other[100] = (other[100] + 1) % ggufgen.Vocabulary
	kept := kit.Without(a, 4, 60)
	n := len(kept)
	kept = append(kept, randomTokens(6, 30)...)
	save := func(s *llamacpp.Session, prompt []kv.Token) error {
		_, err := s.Save(f.ctx, kv.Tokens(prompt...), 0)
		return err
	}
	cut := func(m *memoryOf, from int) error {
		if !m.remove(m.memory, 0, int32(from), -1) {
			return errNotDone
		}
		return nil
	}
	shift := func(m *memoryOf) error {
		if !m.canShift(m.memory) || !m.remove(m.memory, 0, 4, 60) {
			return errNotDone
		}
		m.add(m.memory, 0, 60, -1, -56)
		return nil
	}
	type (
		session = *llamacpp.Session
		lctx    = *llama.Context
	)
	return []sequenceFault{
		{"nothing", true, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			return [][]kv.Token{a}, errors.Join(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0), save(s, a))
		}},
		{"shifted, saved at once", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			if err := shift(m); err != nil {
				return nil, err
			}
			return [][]kv.Token{kept[:n]}, save(s, kept[:n])
		}},
		{"shifted, decoded, saved", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			if err := shift(m); err != nil {
				return nil, err
			}
			f.decode(c, kept, n, 7)
			return [][]kv.Token{kept, a}, save(s, kept)
		}},
		{"shifted unseen, decoded, saved", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.decode(c, a, 0, batchTokens)
			if err := shift(m); err != nil {
				return nil, err
			}
			f.decode(c, kept, n, 7)
			return [][]kv.Token{kept}, save(s, kept)
		}},
		{"saved as another prompt", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			return [][]kv.Token{other}, save(s, other)
		}},
		{"edited through Prefill", true, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			if err := cut(m, parts); err != nil {
				return nil, err
			}
			f.must(s.Prefill(f.ctx, kv.Tokens(b...), parts, 0))
			return [][]kv.Token{b, a}, save(s, b)
		}},
		{"edited, not told", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			if err := cut(m, parts); err != nil {
				return nil, err
			}
			f.decode(c, b, parts, batchTokens)
			return [][]kv.Token{b, a}, save(s, b)
		}},
		{"edited, told by Truncate", true, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			if err := cut(m, parts); err != nil {
				return nil, err
			}
			f.must(s.Truncate(0, parts))
			f.decode(c, b, parts, batchTokens)
			return [][]kv.Token{b, a}, save(s, b)
		}},
		{"filled anew, not told", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			f.must(cut(m, 0))
			f.decode(c, other, 0, batchTokens)
			return [][]kv.Token{other, a}, save(s, other)
		}},
		{"filled anew, told by Reset", true, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			f.must(cut(m, 0))
			f.must(s.Reset(0))
			f.decode(c, other, 0, batchTokens)
			return [][]kv.Token{other, a}, save(s, other)
		}},
	}
}
