//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"fmt"
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

// of names weights of ggufgen.LLaMA(…, 3, 64).
func of(names ...string) (out []ggufgen.LoRATarget) {
	for _, name := range names {
		t := ggufgen.LoRATarget{Name: name, In: 128, Out: 128}
		switch {
		case strings.Contains(name, "attn_q"):
			t.Out = 256
		case strings.Contains(name, "attn_output"):
			t.In = 256
		}
		out = append(out, t)
	}
	return out
}

// What a context computes without an adapter never becomes what is known of the adapter, whoever says that it is set.
func TestAdapterThatIsNotSet(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	l := r.lora()
	said := []kv.Adapter{{Hash: kv.HashOf("an adapter"), Scale: 1}}
	plain := kv.Tokens(randomTokens(1, 100)...)
	with := plain
	with.Adapters = said
	c := r.context()
	s := r.attach(c, nil)
	kit.EvaluateAndSave(t, s, plain, 0, 0)
	empty := func() { r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1) }
	refused := func(what string, err error, says string) {
		t.Helper()
		if !errors.Is(err, llamacpp.ErrIdentity) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
		if notes, err := db.Collect(s.Model().Notes()); err != nil || len(notes) != 1 {
			t.Errorf("%s: the notes are %q now: %v", what, notes, err)
		}
	}
	empty()
	refused("restore", second(s.Restore(ctx, with, 0)), "call Session.Recheck")
	refused("recheck", s.Recheck(ctx, said...), "they are not set")
	_, err := r.tryAttach(c, func(o *llamacpp.Options) { o.Adapters = said })
	refused("attach", err, "they are not set")
	l.on(t, r, c, ggufgen.LoRA("llama", 5, 0.5, of("blk.2.attn_q.weight", "blk.2.attn_output.weight")...))
	refused("an adapter that changes no row", s.Recheck(ctx, said...), "leave them out")

	// Without being said, its rows are those of the base, and right.
	if err := s.Recheck(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Restore(ctx, plain, 0); err != nil || got.Tokens != 99 {
		t.Fatalf("restored %d: %v", got.Tokens, err)
	}
	if err := s.Prefill(ctx, plain, 99, 0); err != nil {
		t.Fatal(err)
	}
	warm := c.Logits(-1)
	empty()
	if err := c.Decode(plain.Tokens[:32], 0, 0); err != nil {
		t.Fatal(err)
	}
	for i := 32; i < 100; i++ {
		if err := c.Decode(plain.Tokens[i:i+1], i, 0); err != nil {
			t.Fatal(err)
		}
	}
	if d := difference(c.Logits(-1), warm); d > 0.001 {
		t.Errorf("the logits are off by %g", d)
	}
	empty()
	l.on(t, r, c, ggufgen.LoRA("llama", 5, 0.5, of("blk.0.attn_k.weight")...))
	if err := s.Recheck(ctx, said...); err != nil {
		t.Fatal(err)
	}
	kit.EvaluateAndSave(t, s, with, 0, 0)
	empty()
	if got, err := s.Restore(ctx, with, 0); err != nil || got.Tokens != 99 {
		t.Errorf("restored %d: %v", got.Tokens, err)
	}
}

// llama.cpp keeps adapters in no order, and none of scale 0.
func TestAdaptersInAnyOrder(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	c := r.context()
	r.lora().on(t, r, c, ggufgen.LoRA("llama", 5, 0.5, of("blk.0.attn_k.weight", "blk.1.attn_v.weight")...)) // as if it were two
	said := []kv.Adapter{{Hash: kv.HashOf("one"), Scale: 1}, {Hash: kv.HashOf("another"), Scale: 0.5}, {Hash: kv.HashOf("off")}}
	prompt := kv.Tokens(randomTokens(1, 100)...)
	prompt.Adapters = said
	other := prompt
	other.Adapters = slices.Clone(said)
	slices.Reverse(other.Adapters)
	s := r.attach(c, func(o *llamacpp.Options) { o.Adapters = said })
	if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, p := range []kv.Prompt{other, prompt, other} {
		if _, err := s.Save(ctx, p, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []kv.Prompt{other, prompt} {
		r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
		if got, err := s.Restore(ctx, p, 0); err != nil || got.Tokens != 99 {
			t.Errorf("restored %d: %v", got.Tokens, err)
		}
	}
	if err := s.Recheck(ctx, other.Adapters...); err != nil {
		t.Error(err)
	}
}

// A canary of an earlier release is made anew, and compared from then on.
func TestCanaryOfAnEarlierRelease(t *testing.T) {
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	prompt := kv.Tokens(randomTokens(1, 100)...)
	s := r.attach(r.context(), nil)
	kit.EvaluateAndSave(t, s, prompt, 0, 0)
	for _, old := range []string{"canary 1\n\xe8\x03\x00\x00 and so on", "rubbish", ""} {
		if err := s.Model().SetNote(context.Background(), "llamacpp canary", []byte(old)); err != nil {
			t.Fatal(err)
		}
		s = r.attach(r.context(), nil)
		if note, err := s.Model().Note("llamacpp canary"); err != nil || !strings.HasPrefix(string(note), "canary 2\n") {
			t.Errorf("the note is %.20q: %v", note, err)
		}
		if got, err := s.Restore(context.Background(), prompt, 0); err != nil || got.Tokens != 99 {
			t.Errorf("restored %d: %v", got.Tokens, err)
		}
		base := r.opt
		r.opt.RopeBase = 5000
		if _, err := r.tryAttach(r.context(), nil); !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("another frequency base: %v", err)
		}
		r.opt = base
	}
}

// Attach and Recheck disturb no tokens where all cells of a shared buffer are in use, however they lie.
func TestAttachInAFullCache(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(2, 7, 64, 40), "hybrid": ggufgen.Jamba(5, 4)} {
		for _, x := range []struct {
			sequences, free int // cells
			turns           int // tokens in turn
			lengths         []int
		}{
			{3, 0, 32, []int{256, 256}},
			{3, 0, 8, []int{416, 96}},
			{3, 5, 1, []int{4, 503}},
			{2, 0, 16, []int{256, 256}},
			{2, 0, 512, []int{512}},
			{1, 0, 512, []int{512}},
		} {
			t.Run(fmt.Sprint(name, " ", x), func(t *testing.T) {
				r := newRig(t, file, llama.ContextOptions{Sequences: x.sequences, Unified: true, Tokens: 512}, db.Options{})
				c := r.context()
				at := make([]int, len(x.lengths))
				for more := true; more; {
					more = false
					for i, n := range x.lengths {
						if step := min(x.turns, batchTokens, n-at[i]); step > 0 {
							if err := c.Decode(randomTokens(i*1000+at[i], step), at[i], i); err != nil {
								t.Fatal(err)
							}
							at[i] += step
							more = true
						}
					}
				}
				state := func(sequence int) []byte {
					n := r.api.StateSize(c.Pointer(), int32(sequence), 0)
					b := make([]byte, n)
					r.api.StateGet(c.Pointer(), &b[0], n, int32(sequence), 0)
					return b
				}
				var before [][]byte
				for i := range x.sequences {
					before = append(before, state(i))
				}
				s, err := r.tryAttach(c, nil)
				if err == nil {
					err = s.Recheck(ctx)
				}
				if err != nil {
					t.Error(err)
				}
				for i := range x.sequences {
					if !slices.Equal(before[i], state(i)) {
						t.Errorf("the state of sequence %d is another one", i)
					}
				}
			})
		}
	}
}
