//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// Rows that were stored by a context with another RoPE scale are not restored; who looks is told what differs; and what is discarded
// takes the rows with it, after which the other context is the one that is refused.
func TestOtherRowsAreRefused(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"rows": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(1, 7, 64, 40), "opaque": ggufgen.Qwen2VL(1, 2)} {
		r := newRig(t, file, llama.ContextOptions{}, db.Options{Codec: quant.Raw})
		prompt := kv.Tokens(randomTokens(1, 100)...)
		right := r.opt
		r.opt.RopeScaling, r.opt.RopeScale, r.opt.Tokens = ref(int32(1)), 0.5, 1024
		wrong := r.opt
		first := r.context()
		old := r.attach(first, nil) // nothing is stored that it could be compared with
		kit.EvaluateAndSave(t, old, prompt, 0, 0)
		r.opt = right
		c := r.context()
		_, err := r.tryAttach(c, nil)
		var bad *llamacpp.IdentityError
		if !errors.As(err, &bad) || !errors.Is(err, llamacpp.ErrIdentity) {
			t.Fatalf("%s: not refused: %v", name, err)
		}
		for _, says := range []string{"n_ctx: 1024, now 512", "DiscardCanary", bad.Fingerprint.String()} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q is not in %v", name, says, err)
			}
		}
		if n := r.api.SequenceMax(r.api.GetMemory(c.Pointer()), 0); n != -1 {
			t.Errorf("%s: the sequence is left with tokens up to %d", name, n)
		}
		s := r.attach(c, func(o *llamacpp.Options) { o.DiscardCanary = true })
		if got, err := s.Restore(ctx, prompt, 0); err != nil || got.Tokens != 0 {
			t.Errorf("%s: %d tokens of the wrong rows are restored: %v", name, got.Tokens, err)
		}
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		if _, err := old.Save(ctx, prompt, 0); !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("%s: the session that was attached first still saves: %v", name, err)
		}
		r.opt = wrong
		if _, err := r.tryAttach(r.context(), nil); !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("%s: the context that was first is not refused: %v", name, err)
		}
		if err := old.Recheck(ctx); !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("%s: the session that was first is not refused: %v", name, err)
		}
		r.opt = right
		s = r.attach(r.context(), func(o *llamacpp.Options) { o.DiscardCanary = true }) // nothing differs: nothing goes
		if got, err := s.Restore(ctx, prompt, 0); err != nil || got.Tokens != 99 && (s.Mode() == llamacpp.Rows || got.Tokens == 0) {
			t.Errorf("%s: %d tokens are restored: %v", name, got.Tokens, err)
		}
	}
}

// The file that is named is the one that the model was loaded from, as far as its head tells; weights that only the canary tells
// apart are refused once there is something to compare with.
func TestAnotherFileIsRefused(t *testing.T) {
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{}, db.Options{})
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	named := func(path string) error {
		_, err := r.tryAttach(r.context(), func(o *llamacpp.Options) { o.Path = path })
		return err
	}
	for name, b := range map[string][]byte{
		"more layers":          ggufgen.LLaMA(1, 5, 64),
		"wider heads":          ggufgen.LLaMA(1, 3, 96),
		"another architecture": ggufgen.Gemma3(1, 3, 64, 40),
		"other metadata":       ggufgen.LongRoPE(1, 3, 64, 256),
	} {
		if err := named(write(name, b)); !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.tryAttach(r.context(), nil); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" { // elsewhere nothing tells
		late := rigFor(t, r.lib, r.api, write("late", ggufgen.LLaMA(5, 3, 64)), llama.ContextOptions{}, db.Options{})
		if err := os.Rename(write("newer", ggufgen.LLaMA(6, 3, 64)), filepath.Join(dir, "late")); err != nil {
			t.Fatal(err)
		}
		if _, err := late.tryAttach(late.context(), nil); !errors.Is(err, llamacpp.ErrIdentity) || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("a file that was replaced: %v", err)
		}
	}
	// A model of other weights, said to be the first one.
	lib, api := library(t)
	other := rigFor(t, lib, api, write("other weights", ggufgen.LLaMA(77, 3, 64)), llama.ContextOptions{}, db.Options{})
	c := other.context()
	if _, err := r.tryAttach(c, nil); !errors.Is(err, llamacpp.ErrIdentity) || !strings.Contains(err.Error(), "other weights") {
		t.Errorf("other weights: %v", err)
	}
}

// A float of the metadata is not taken for another one because C writes it in another way.
func TestOddFloatsInTheFile(t *testing.T) {
	file := ggufgen.LLaMA(1, 3, 64)
	values := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), float32(math.Copysign(0, -1)), 1e-5, math.MaxFloat32, 1.5}
	var more []byte // of each 32 bytes, as what follows is aligned
	for i, v := range values {
		name := fmt.Sprintf("test.a.float.%03d", i)
		more = binary.LittleEndian.AppendUint64(more, uint64(len(name)))
		more = append(more, name...)
		more = binary.LittleEndian.AppendUint32(more, 6) // GGUF_TYPE_FLOAT32
		more = binary.LittleEndian.AppendUint32(more, math.Float32bits(v))
	}
	const head = 24 // magic, version, number of tensors, number of keys
	binary.LittleEndian.PutUint64(file[16:], binary.LittleEndian.Uint64(file[16:])+uint64(len(values)))
	r := newRig(t, slices.Concat(file[:head], more, file[head:]), llama.ContextOptions{}, db.Options{})
	for range 2 { // once from the file, once from the memo
		r.attach(r.context(), nil)
	}
}

// Attach disturbs nobody's tokens: it takes an empty sequence, or puts back what it took out, to the bit.
func TestAttachLeavesTokens(t *testing.T) {
	library(t)
	for _, arch := range architectures() {
		model := newRig(t, arch.gguf(), arch.context, db.Options{})
		for _, busy := range [][]int{{0}, {0, 1}, {1}} {
			o := arch.context
			if slices.Contains(busy, 1) && o.Sequences == 0 {
				o.Sequences = 2
			}
			r := model.withStore(db.Options{})
			r.opt = contextOptions(o)
			c := r.context()
			tokens := randomTokens(3, 96)
			state := func(sequence int) []byte {
				n := r.api.StateSize(c.Pointer(), int32(sequence), 0)
				b := make([]byte, n)
				r.api.StateGet(c.Pointer(), &b[0], n, int32(sequence), 0)
				return b
			}
			before := map[int][]byte{}
			for _, sequence := range busy {
				for i := 0; i < len(tokens); i += batchTokens {
					if err := c.Decode(tokens[i:i+batchTokens], i, sequence); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, sequence := range busy {
				before[sequence] = state(sequence)
			}
			r.attach(c, nil)
			for sequence, b := range before {
				if !slices.Equal(b, state(sequence)) {
					t.Errorf("%s, busy %v: the state of sequence %d is another one", arch.name, busy, sequence)
				}
			}
			for sequence := range int(max(1, o.Sequences)) {
				if !slices.Contains(busy, sequence) && r.api.SequenceMax(r.api.GetMemory(c.Pointer()), int32(sequence)) >= 0 {
					t.Errorf("%s, busy %v: sequence %d was empty", arch.name, busy, sequence)
				}
			}
		}
	}
}

// Two sequences that share their cells may not both fit once one of them was taken out: Attach says so before it takes anything out.
func TestAttachLeavesSharedTokens(t *testing.T) {
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(2, 7, 64, 40), "hybrid": ggufgen.Jamba(5, 4)} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{200, 400} {
				r := newRig(t, file, llama.ContextOptions{Sequences: 2, Unified: true, Tokens: 512}, db.Options{})
				c := r.context()
				for i := 0; i < n; i += 8 {
					if err := c.Decode(randomTokens(i, 8), i, 0); err != nil {
						t.Fatal(err)
					}
				}
				memory := r.api.GetMemory(c.Pointer())
				r.api.SequenceCopy(memory, 0, 1, -1, -1)
				_, err := r.tryAttach(c, nil)
				if n == 200 && err != nil || n == 400 && !errors.Is(err, llamacpp.ErrRefused) {
					t.Errorf("%d tokens, shared: %v", n, err)
				}
				for sequence := range int32(2) {
					if have := r.api.SequenceMax(memory, sequence) + 1; have != int32(n) {
						t.Errorf("sequence %d has %d tokens, not %d", sequence, have, n)
					}
				}
			}
		})
	}
}

// Adapters are compared as the rest is: what is stored with one is not for a context without it, and the other way round, however it is
// switched on and off.
func TestAdapters(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	l := r.lora()
	var targets []ggufgen.LoRATarget
	for _, name := range []string{"blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.2.attn_k.weight"} {
		targets = append(targets, ggufgen.LoRATarget{Name: name, In: 128, Out: 128})
	}
	adapter := ggufgen.LoRA("llama", 5, 0.5, targets...)
	said := []kv.Adapter{{Hash: kv.HashOf("an adapter"), Scale: 1}}
	plain := kv.Tokens(randomTokens(1, 100)...)
	with := plain
	with.Adapters = said

	base := r.context()
	kit.EvaluateAndSave(t, r.attach(base, nil), plain, 0, 0)

	c := r.context()
	l.on(t, r, c, adapter)
	if _, err := r.tryAttach(c, nil); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Fatalf("an adapter that is not said: %v", err)
	}
	s := r.attach(c, func(o *llamacpp.Options) { o.Adapters = said })
	for what, err := range map[string]error{
		"prefill": s.Prefill(ctx, plain, 0, 0),
		"capture": s.Capture(ctx, plain, 0),
		"restore": second(s.Restore(ctx, plain, 0)), // looks, and finds an adapter
	} {
		if !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("%s of a prompt without the adapter: %v", what, err)
		}
	}
	if err := s.Recheck(ctx, said...); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 96; i += batchTokens { // the caller's own loop
		if err := c.Decode(plain.Tokens[i:i+batchTokens], i, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Save(ctx, plain, 0); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Errorf("save of a prompt without the adapter: %v", err)
	}
	r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
	kit.EvaluateAndSave(t, s, with, 0, 0)

	// Switched off: the prompts without it are restored, those with it are not.
	r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
	if l.set(c.Pointer(), nil, 0, nil) != 0 {
		t.Fatal("the adapter stays")
	}
	got, err := s.Restore(ctx, plain, 0)
	if err != nil || got.Tokens != 99 {
		t.Errorf("without: restored %d: %v", got.Tokens, err)
	}
	r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
	if _, err := s.Restore(ctx, with, 0); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Errorf("with an adapter that is switched off: %v", err)
	}
	// A forgotten adapter: what is stored with it is refused.
	if _, err := r.tryAttach(r.context(), func(o *llamacpp.Options) { o.Adapters = said }); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Errorf("an adapter that is said and not there: %v", err)
	}
	d := r.context()
	l.on(t, r, d, adapter)
	s = r.attach(d, func(o *llamacpp.Options) { o.Adapters = said })
	if got, err := s.Restore(ctx, with, 0); err != nil || got.Tokens != 99 {
		t.Errorf("with: restored %d: %v", got.Tokens, err)
	}
}

func second[T any](_ T, err error) error { return err }

// A store that is only read is compared with, and not written to.
func TestCanaryOfAReadOnlyStore(t *testing.T) {
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	prompt := kv.Tokens(randomTokens(1, 100)...)
	kit.EvaluateAndSave(t, r.attach(r.context(), nil), prompt, 0, 0)
	r.reopen(db.Options{ReadOnly: true})
	s := r.attach(r.context(), nil)
	if got, err := s.Restore(context.Background(), prompt, 0); err != nil || got.Tokens != 99 {
		t.Errorf("restored %d: %v", got.Tokens, err)
	}
	r.opt.RopeBase = 5000
	if _, err := r.tryAttach(r.context(), nil); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Errorf("not refused: %v", err)
	}
}
