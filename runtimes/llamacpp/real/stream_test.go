//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// llama.cpp itself: what comes in pieces gives the logits of what comes whole and of what was evaluated in the same batches,
// to the last bit.
func TestPiecesInLlama(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{
		"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(2, 7, 64, 40), "latent": ggufgen.DeepSeek2(3, 3),
		"hybrid": ggufgen.Jamba(5, 4),
	} {
		for _, flash := range []bool{true, false} {
			r := newRig(t, file, llama.ContextOptions{Sequences: 3, Unified: true, FlashAttention: &flash}, db.Options{Codec: quant.Raw})
			tokens := randomTokens(1, 300)
			prompt := kv.Tokens(tokens...)
			s := r.attach(r.context(), kit.Small)
			for _, part := range [][2]int{{0, 256}, {256, 300}} { // a hybrid is restored where it was saved
				if err := s.Prefill(ctx, prompt.Prefix(part[1]), part[0], 1); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Save(ctx, prompt, 1); err != nil {
					t.Fatal(err)
				}
			}
			cold := r.evaluated(prompt, s.BatchTokens(), 0)
			if s.Mode() != llamacpp.Rows {
				cold = r.prefilled(prompt, 0)
			}
			var whole []float32
			for _, piece := range []int{4 << 20, 50000, 3000} {
				undo := piecesize.Set(piece)
				c := r.context()
				s := r.attach(c, kit.Small)
				other := randomTokens(9, 32)
				if err := c.Decode(other, 0, 1); err != nil {
					t.Fatal(err)
				}
				got, err := s.Restore(ctx, prompt.Prefix(257), 0)
				undo()
				if err != nil || got.Tokens != 256 {
					t.Fatalf("%s: restored %d tokens in pieces of %d bytes: %v %v", name, got.Tokens, piece, got.Reason, err)
				}
				if err := s.Prefill(ctx, prompt, 256, 0); err != nil {
					t.Fatal(err)
				}
				logits := c.Logits(-1)
				if whole == nil {
					whole = logits
				}
				d, e := difference(whole, logits), difference(cold, logits)
				t.Logf("%s, flash attention %t, pieces of %d bytes: %.2g from whole, %.2g from cold", name, flash, piece, d, e)
				if d != 0 || e > 0.005 || e != 0 && name != "window" {
					t.Errorf("logits differ")
				}
				if n := r.api.SequenceMax(r.api.GetMemory(c.Pointer()), 1); n != 31 {
					t.Errorf("the other sequence ends at %d", n)
				}
				if n := r.api.SequenceMax(r.api.GetMemory(c.Pointer()), 2); n != -1 {
					t.Errorf("the free sequence ends at %d", n)
				}
				c.Close()
			}
		}
	}
}

// Another sequence has most of a shared buffer: what is left is used, and evaluated from there.
func TestLittleRoomInLlama(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 2, 64), "window": ggufgen.Gemma3(2, 6, 64, 40)} {
		r := newRig(t, file, llama.ContextOptions{Tokens: 256, Sequences: 2, Unified: true}, db.Options{Codec: quant.Raw})
		prompt := kv.Tokens(randomTokens(1, 200)...)
		s := r.attach(r.context(), nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		for _, other := range []int{60, 156, 255, 256} {
			c := r.context()
			s := r.attach(c, nil)
			tokens := randomTokens(3, other)
			r.decodeIn(c, tokens, 0, batchTokens, 1)
			want := min(199, 256-other-1)
			if want < kv.OpeningTokens {
				want = 0
			}
			got, err := s.Restore(ctx, prompt, 0)
			if err != nil || got.Tokens != want {
				t.Fatalf("%s: %d cells are occupied: restored %d tokens, want %d: %v %v", name, other, got.Tokens, want, got.Reason, err)
			}
			if n := r.api.SequenceMax(r.api.GetMemory(c.Pointer()), 1) + 1; int(n) != other {
				t.Errorf("the other sequence has %d tokens, not %d", n, other)
			}
			if want > 0 {
				if err := s.Prefill(ctx, prompt.Prefix(want+1), want, 0); err != nil {
					t.Errorf("%s: %d cells are occupied: no room for one token: %v", name, other, err)
				}
			}
			c.Close()
		}
	}
}
