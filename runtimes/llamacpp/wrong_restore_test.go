//go:build (linux && !android) || (darwin && !ios)

package llamacpp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// verdict is a cell of the matrix: a refusal, or how far the logits are from those of a cold run.
type verdict struct {
	Refused string // by what; empty: not
	Warned  bool   // by Attach
	Tokens  int    // restored
	Off     float64
	Floor   float64 // how far cold runs are from one another that evaluate the prompt in other batches
}

func (v verdict) String() string {
	switch {
	case v.Refused != "":
		return v.Refused
	case v.Tokens == 0:
		return "nothing restored"
	}
	text := fmt.Sprintf("%.1e of %.1e", v.Off, v.Floor)
	if v.Warned {
		text += ", with a warning in the log"
	}
	return text
}

// worse is the one of two verdicts that is further off.
func (v verdict) worse(w verdict) verdict {
	if v.Tokens == 0 || w.Tokens > 0 && w.Off-w.Floor > v.Off-v.Floor {
		return w
	}
	return v
}

// refusal names what an error is.
func refusal(err error) string {
	for name, is := range map[string]error{"identity": llamacpp.ErrIdentity, "lineage": llamacpp.ErrLineage, "positions": llamacpp.ErrPositions} {
		if errors.Is(err, is) {
			return name
		}
	}
	return ""
}

// field is a model on which faults are tried.
type field struct {
	*rig
	ctx    context.Context
	x      canaryCase
	tokens []kv.Token // of the prompt that is stored
	cold   map[string][][]float32
	log    bytes.Buffer // what the last Attach warned of
}

const (
	storedTokens = 200
	firstSave    = 128 // of a state that cannot be cut, the one there is restored, too
)

func (f *field) attach(c *llama.Context) (*llamacpp.Session, error) {
	f.log.Reset()
	o := llamacpp.Options{Decode: c.Decode, Logger: slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	said(&o)
	return llamacpp.Attach(f.ctx, f.store, f.api, c.Pointer(), o)
}

// must fails the test.
func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// fill evaluates and saves the prompt.
func (f *field) fill(c *llama.Context) {
	f.t.Helper()
	s, err := f.attach(c)
	f.must(err)
	from := 0
	for _, n := range []int{firstSave, storedTokens} {
		prompt := kv.Tokens(f.tokens[:n]...)
		f.must(s.Prefill(f.ctx, prompt, from, 0))
		_, err = s.Save(f.ctx, prompt, 0)
		f.must(err)
		from = n
	}
}

// runs are the logits of cold runs, in batches of several sizes. what names how the contexts are made.
func (f *field) runs(what string, make func() *llama.Context, prompt []kv.Token) (out [][]float32) {
	f.t.Helper()
	key := fmt.Sprint(what, prompt)
	if out, ok := f.cold[key]; ok {
		return out
	}
	for _, batch := range []int{batchTokens, 25, 10} {
		c := make()
		f.decode(c, prompt, 0, batch)
		out = append(out, c.Logits(-1))
		c.Close()
	}
	f.cold[key] = out
	return out
}

// tried restores prompts that go on from one that may be stored, in contexts that are made so, and compares with cold runs there.
func (f *field) tried(what string, make func() *llama.Context, stored []kv.Token) verdict {
	f.t.Helper()
	v := f.worst(what, make, stored)
	if v.Off > v.Floor {
		f.t.Errorf("%s, %s: %d tokens are restored, and the logits are off by %.3g, with other batches by %.3g", f.x.name, what, v.Tokens, v.Off, v.Floor)
	}
	return v
}

// worst is tried without a judgement.
func (f *field) worst(what string, make func() *llama.Context, stored []kv.Token) (v verdict) {
	f.t.Helper()
	for _, shared := range []int{len(stored), len(stored) - 50} {
		w := f.compared(what, make, slices.Concat(stored[:shared], randomTokens(99, 24)))
		if w.Refused != "" {
			return w
		}
		v = v.worse(w)
	}
	return v
}

func (f *field) compared(what string, make func() *llama.Context, prompt []kv.Token) verdict {
	f.t.Helper()
	c := make()
	defer c.Close()
	s, err := f.attach(c)
	if why := refusal(err); why != "" {
		return verdict{Refused: why}
	}
	f.must(err)
	warned := f.log.Len() > 0
	got, err := s.Restore(f.ctx, kv.Tokens(prompt...), 0)
	f.must(err)
	f.must(s.Prefill(f.ctx, kv.Tokens(prompt...), got.Tokens, 0))
	cold := f.runs(what, make, prompt)
	return verdict{Warned: warned, Tokens: got.Tokens, Off: difference(cold[0], c.Logits(-1)), Floor: max(difference(cold[0], cold[1]), difference(cold[0], cold[2]))}
}

// made makes contexts with other options.
func (f *field) made(change func(*llama.ContextOptions)) func() *llama.Context {
	o := f.opt
	change(&o)
	return func() *llama.Context {
		f.t.Helper()
		c, err := f.model.NewContext(o)
		f.must(err)
		return c
	}
}

func (f *field) plain() *llama.Context { return f.made(func(*llama.ContextOptions) {})() }

// fresh gives the field an empty store.
func (f *field) fresh() {
	f.t.Helper()
	f.must(f.store.Close())
	store, err := db.Open(f.ctx, filepath.Join(f.t.TempDir(), "store"), db.Options{Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler)})
	f.must(err)
	f.store = store
}

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
		m, err := lib.LoadModel(f.x.other, llama.ModelOptions{CPUOnly: true})
		f.must(err)
		f.t.Cleanup(m.Close)
		out = append(out, contextFault{name: "other weights", make: func() *llama.Context {
			c, err := m.NewContext(f.opt)
			f.must(err)
			return c
		}})
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
		out = append(out, contextFault{name: "rotation by environment", make: func() *llama.Context {
			const name = "LLAMA_ATTN_ROT_DISABLE"
			f.must(os.Setenv(name, "1")) // in C, too; when the context is attached, it is gone
			defer os.Unsetenv(name)
			return f.plain()
		}})
	}
	return out
}

// matters is how far the logits of a cold run are from those without the fault.
func (f *field) matters(fault contextFault) float64 {
	prompt := slices.Concat(f.tokens, randomTokens(99, 24))
	return difference(f.runs("plain", f.plain, prompt)[0], f.runs(fault.name, fault.make, prompt)[0])
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
	b := slices.Clone(a) // parts at 150
	copy(b[150:], randomTokens(5, storedTokens-150))
	other := slices.Clone(a)
	other[100] = (other[100] + 1) % ggufgen.Vocabulary
	kept := without(a, 4, 60)
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
			if err := cut(m, 150); err != nil {
				return nil, err
			}
			f.must(s.Prefill(f.ctx, kv.Tokens(b...), 150, 0))
			return [][]kv.Token{b, a}, save(s, b)
		}},
		{"edited, not told", false, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			if err := cut(m, 150); err != nil {
				return nil, err
			}
			f.decode(c, b, 150, batchTokens)
			return [][]kv.Token{b, a}, save(s, b)
		}},
		{"edited, told by Truncate", true, func(s session, c lctx, m *memoryOf) ([][]kv.Token, error) {
			f.must(s.Prefill(f.ctx, kv.Tokens(a...), 0, 0))
			f.must(save(s, a))
			if err := cut(m, 150); err != nil {
				return nil, err
			}
			f.must(s.Truncate(0, 150))
			f.decode(c, b, 150, batchTokens)
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

// wrongRestoreCases are at least one model of every architecture, all kinds of states among them.
func wrongRestoreCases(t *testing.T) (out []canaryCase) {
	dir := t.TempDir()
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
		c.path, c.other = filepath.Join(dir, x.name+".gguf"), filepath.Join(dir, x.name+" other.gguf")
		for seed, path := range []string{c.path, c.other} {
			if err := os.WriteFile(path, x.gguf(uint64(seed+1)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c.opt.CacheK, c.opt.CacheV, c.opt.FullWindow = x.cache, x.cache, x.name == "gemma3 q8_0, all cells kept"
		c.adapters(t, x.adapter)
		out = append(out, c)
	}
	stories := canaryCase{name: "stories260K", path: "testdata/stories260K-f32.gguf", arch: "llama", rope: true}
	stories.adapters(t, []string{"attn_k", "attn_v"})
	return append(out, stories)
}

func newField(t *testing.T, lib *llama.Lib, api *llamacpp.Library, x canaryCase) *field {
	f := &field{rig: rigFor(t, lib, api, x.path, x.opt, db.Options{Codec: quant.Raw}), ctx: context.Background(), x: x, cold: map[string][][]float32{}}
	f.tokens = randomTokens(1, storedTokens)
	return f
}

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
