//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
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

// lateCopies are models whose contexts have a stream for each sequence.
func lateCopies() map[string]func() []byte {
	return map[string]func() []byte{
		"plain": func() []byte { return ggufgen.LLaMA(1, 3, 64) }, "window": func() []byte { return ggufgen.Gemma3(2, 7, 64, 40) },
		"latent": func() []byte { return ggufgen.DeepSeek2(3, 3) }, "M-RoPE": func() []byte { return ggufgen.Qwen2VL(6, 2) },
		"jamba": func() []byte { return ggufgen.Jamba(5, 4) }, "falcon-h1": func() []byte { return ggufgen.FalconH1(7, 3) }, "lfm2": func() []byte { return ggufgen.LFM2(8, 4) },
	}
}

// Between streams llama_memory_seq_cp copies rows in the next llama_decode only. Whatever a program does in between, with an empty sequence at hand or none: what is stored and
// restored has the logits of a cold run, and the sequences of the program have what they had.
func TestLateCopies(t *testing.T) {
	library(t)
	ctx := context.Background()
	a, b := randomTokens(1, 141), randomTokens(2, 141)
	for name, file := range lateCopies() {
		for _, sequences := range []int{2, 3} {
			r := newRig(t, file(), llama.ContextOptions{Sequences: sequences, Tokens: 256 * sequences, FullWindow: false}, db.Options{Codec: quant.Raw})
			near := func(what string, tokens []kv.Token, c *llama.Context) {
				t.Helper()
				if d := difference(r.evaluated(kv.Tokens(tokens...), batchTokens, 1), c.Logits(-1)); d > 2e-2 {
					t.Errorf("%s, %d sequences: %s: %.2g from a cold run", name, sequences, what, d)
				}
			}
			// stored is what another context restores of what was saved.
			stored := func(what string, r *rig, tokens []kv.Token) {
				t.Helper()
				c := r.context()
				defer c.Close()
				s := r.attach(c, nil)
				got, err := s.Restore(ctx, kv.Tokens(tokens...), 1)
				if err != nil || got.Tokens < 100 {
					t.Fatalf("%s: %s: %+v %v", name, what, got, err)
				}
				if err := s.Prefill(ctx, kv.Tokens(tokens...), got.Tokens, 1); err != nil {
					t.Fatal(err)
				}
				near(what, tokens, c)
			}
			prefilled := func(r *rig) (*llama.Context, *llamacpp.Session, uintptr) {
				c := r.context()
				s := r.attach(c, nil)
				if err := s.Prefill(ctx, kv.Tokens(a[:140]...), 0, 0); err != nil {
					t.Fatal(err)
				}
				return c, s, r.api.GetMemory(c.Pointer())
			}

			q := r.withStore(db.Options{Codec: quant.Raw})
			c, s, mem := prefilled(q)
			was := c.Logits(-1)
			r.api.SequenceCopy(mem, 0, 1, -1, -1)
			if err := s.Reset(1); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, kv.Tokens(a[:140]...), 1); err != nil {
				t.Fatal(name, err)
			}
			if !slices.Equal(was, c.Logits(-1)) {
				t.Errorf("%s: a save changes the logits of the last decode", name)
			}
			stored("copied, Reset, saved", q, a)
			if err := c.Decode(a[140:], 140, 1); err != nil {
				t.Fatal(err)
			}
			near("the copy goes on", a, c)

			q = r.withStore(db.Options{Codec: quant.Raw})
			c, s, mem = prefilled(q)
			if _, err := s.Save(ctx, kv.Tokens(a[:140]...), 0); err != nil {
				t.Fatal(err)
			}
			c.Clear()
			if err := s.Prefill(ctx, kv.Tokens(b[:140]...), 0, 0); err != nil {
				t.Fatal(err)
			}
			r.api.SequenceCopy(mem, 0, 1, -1, -1)
			r.api.SequenceRemove(mem, 1, -1, -1)
			if got, err := s.Restore(ctx, kv.Tokens(a...), 1); err != nil || got.Tokens < 100 {
				t.Fatal(name, got, err)
			} else if err := s.Prefill(ctx, kv.Tokens(a...), got.Tokens, 1); err != nil {
				t.Fatal(err)
			}
			near("copied, emptied, restored", a, c)

			// The source of a copy is restored into before the copy was made.
			r.api.SequenceRemove(mem, 1, -1, -1)
			r.api.SequenceCopy(mem, 0, 1, -1, -1)
			r.api.SequenceRemove(mem, 0, -1, -1)
			if got, err := s.Restore(ctx, kv.Tokens(a...), 0); err != nil || got.Tokens < 100 {
				t.Fatal(name, got, err)
			}
			if err := c.Decode(b[140:], 140, 1); err != nil {
				t.Fatal(err)
			}
			near("a copy of what is restored into", b, c)

			q = r.withStore(db.Options{Codec: quant.Raw})
			_, s, mem = prefilled(q)
			r.api.SequenceRemove(mem, 0, -1, -1)
			if err := s.Prefill(ctx, kv.Tokens(a[:90]...), 0, 0); err != nil {
				t.Fatal(err)
			}
			r.api.SequenceCopy(mem, 0, 1, -1, -1)
			if err := s.Reset(1); err != nil {
				t.Fatal(err)
			}
			if err := s.Prefill(ctx, kv.Tokens(a[:140]...), 90, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, kv.Tokens(a[:140]...), 1); err != nil {
				t.Fatal(err)
			}
			stored("copied, Reset, evaluated on, saved", q, a)
			if s.Mode() == llamacpp.Rows {
				stored("a part of that", q, slices.Concat(a[:130], randomTokens(9, 11)))
			}

			// Attach when a copy is due, and no sequence is empty.
			c = r.context()
			mem = r.api.GetMemory(c.Pointer())
			r.decode(c, b[:140], 0, batchTokens)
			for to := 1; to < sequences; to++ {
				r.api.SequenceCopy(mem, 0, int32(to), -1, -1)
			}
			r.attach(c, func(o *llamacpp.Options) { o.Sequence = 1 })
			if err := c.Decode(b[140:], 140, 1); err != nil {
				t.Fatal(err)
			}
			near("copied, attached", b, c)

			// A copy that nobody told of is refused, or stored as it is.
			q = r.withStore(db.Options{Codec: quant.Raw})
			_, s, mem = prefilled(q)
			r.api.SequenceCopy(mem, 0, 1, -1, -1)
			_, err := s.Save(ctx, kv.Tokens(a[:140]...), 1)
			if !errors.Is(err, llamacpp.ErrLineage) {
				t.Errorf("%s: a copy that was not told: %v", name, err)
			}
		}
	}
}

// Positions that the session never saw, shifted or divided and saved before the next decode: llama.cpp has not rotated their keys yet. Nothing is stored.
func TestShiftedAtOnce(t *testing.T) {
	library(t)
	ctx := context.Background()
	tokens := randomTokens(1, 150)
	kept := kit.Without(tokens, 4, 54)
	models := lateCopies()
	delete(models, "M-RoPE") // is not shifted
	delete(models, "jamba")  // does not rotate
	for name, file := range models {
		for _, o := range []llama.ContextOptions{{}, {Sequences: 3, Tokens: 768}, {Sequences: 3, Unified: true}, {CacheK: ref(llama.Q8_0), FlashAttention: ref(true)}, {Sequences: 2, Unified: true}} {
			if o.CacheK != nil && (name == "latent" || name == "falcon-h1" || name == "lfm2") { // of hybrids, llama_decode ends the process after a shift, whoever calls it
				continue
			}
			o.FullWindow = true
			r := newRig(t, file(), o, db.Options{Codec: quant.Raw})
			for _, how := range []string{"never seen", "only the begin was seen", "all occupied", "told by Reset", "prefilled, one token over and over"} {
				c := r.context()
				s := r.attach(c, nil)
				m := r.memory(c)
				all, want := tokens, kept
				if !m.canShift(m.memory) {
					t.Fatal(name)
				}
				if how == "prefilled, one token over and over" {
					all = make([]kv.Token, 150)
					want = all[:100]
				}
				if how == "all occupied" {
					for i := 1; i < o.Sequences; i++ {
						if err := c.Decode(tokens[:8], 0, i); err != nil {
							t.Fatal(err)
						}
					}
				}
				seen := map[string]int{"only the begin was seen": 4, "prefilled, one token over and over": 150}[how]
				if seen > 0 {
					if err := s.Prefill(ctx, kv.Tokens(all[:seen]...), 0, 0); err != nil {
						t.Fatal(err)
					}
				}
				r.decode(c, all, seen, batchTokens)
				if how == "told by Reset" {
					if err := s.Reset(0); err != nil {
						t.Fatal(err)
					}
				}
				if !m.remove(m.memory, 0, 4, 54) { // a recurrent state does not go back; its attention is shifted all the same
					continue
				}
				m.add(m.memory, 0, 54, -1, -50)
				put, err := s.Save(ctx, kv.Tokens(want...), 0)
				if err == nil {
					t.Errorf("%s, %+v, %s: stored %d", name, o, how, put.Tokens)
				}
				if put, err := s.Save(ctx, kv.Tokens(want...), 0); err == nil { // nor the second time
					t.Errorf("%s, %+v, %s, once more: stored %d", name, o, how, put.Tokens)
				}
				c.Close()
			}
		}
	}
}

// A host copies a sequence into another stream, calls Reset, and shifts the copy. Only the next decode makes the copy, and it rotates the keys as well. Nothing of it is stored. A copy
// that only lost its end is stored, if Truncate or Reset said so.
func TestLateCopyShifted(t *testing.T) {
	library(t)
	ctx := context.Background()
	models := lateCopies()
	delete(models, "M-RoPE") // is not shifted
	delete(models, "jamba")  // does not rotate
	for name, file := range models {
		for _, sequences := range []int{2, 3} {
			all := newRig(t, file(), llama.ContextOptions{Sequences: sequences, Tokens: 256 * sequences, FullWindow: true}, db.Options{Codec: quant.Raw})
			for how, refused := range map[string]bool{
				"shifted": true, "shifted, and its source is gone": true, "shifted, evaluated on": true, "Reset, copied, shifted": true,
				"its end is gone": true, "its end is gone, Truncate": false, "its end is gone, Reset": false,
			} {
				r := all.withStore(db.Options{Codec: quant.Raw})
				c := r.context()
				s := r.attach(c, nil)
				m := r.memory(c)
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatalf("%s, %d sequences, %s: %v", name, sequences, how, err)
					}
				}
				tokens := randomTokens(1, 136)
				want, shifts := tokens[:70], strings.Contains(how, "shifted")
				if shifts {
					want = kit.Without(tokens, 23, 96)
				}
				must(s.Prefill(ctx, kv.Tokens(tokens...), 0, 0))
				if strings.HasPrefix(how, "Reset, ") {
					must(s.Reset(1))
					r.api.SequenceCopy(m.memory, 0, 1, -1, -1)
				} else {
					r.api.SequenceCopy(m.memory, 0, 1, -1, -1)
					must(s.Reset(1))
				}
				if shifts {
					if !m.remove(m.memory, 1, 23, 96) {
						t.Fatal(name)
					}
					m.add(m.memory, 1, 96, -1, 23-96)
				} else if !m.remove(m.memory, 1, 70, -1) { // a recurrent state does not go back
					continue
				}
				switch {
				case strings.HasSuffix(how, "source is gone"):
					r.api.SequenceRemove(m.memory, 0, -1, -1)
				case strings.HasSuffix(how, "evaluated on"):
					want = append(want, randomTokens(5, 20)...)
					must(s.Prefill(ctx, kv.Tokens(want...), 63, 1))
				case strings.HasSuffix(how, "Truncate"):
					must(s.Truncate(1, 70))
				case strings.HasSuffix(how, ", Reset"):
					must(s.Reset(1))
				}
				for range 2 {
					if _, err := s.Save(ctx, kv.Tokens(want...), 1); refused != errors.Is(err, llamacpp.ErrLineage) || !refused && err != nil {
						t.Errorf("%s, %d sequences, %s: %v", name, sequences, how, err)
					}
				}
				c.Close()
			}
		}
	}
}
