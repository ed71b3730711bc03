//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

const (
	qualityPrompt  = 1536 // tokens that are evaluated, stored and restored
	qualityTeacher = 256  // tokens of the same text behind them
	teacherBatch   = 32
)

// teacherForced evaluates the text behind the prompt, whatever the model would have said, and returns the logits of each token.
func teacherForced(t testing.TB, c *llama.Context, tokens []kv.Token, from int) [][]float32 {
	t.Helper()
	var out [][]float32
	for ; from < len(tokens); from += teacherBatch {
		n := min(teacherBatch, len(tokens)-from)
		if err := c.DecodeAll(tokens[from:from+n], from, 0); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			out = append(out, c.Logits(i))
		}
	}
	return out
}

// What a real model predicts for a real text after its f16 cache was stored and restored, beside what it predicts in the
// process that was never killed. Lossless rows must change no bit. INT8 rows may change 3.5 % of the likeliest tokens and
// cost 0.01 nats; where llama.cpp, evaluating the same prompt in other batches, is further from itself than that, a quarter
// more than it.
func TestQuality(t *testing.T) {
	const (
		batch          = 512
		mostDisagree   = 0.035
		mostKL         = 0.01
		overNoise      = 1.25
		otherA, otherB = 250, 100 // sizes that divide batch would give the same bits
	)
	lib, api := library(t)
	path := realModel(t)
	ctx := context.Background()
	o := llama.ContextOptions{Tokens: 2048, Batch: batch, MicroBatch: batch, FullWindow: true}
	raw := rigFor(t, lib, api, path, o, db.Options{Codec: quant.Raw})
	int8 := raw.withStore(db.Options{Codec: quant.Q8_0})
	tokens := realTokens(t, raw.model, qualityPrompt+qualityTeacher)
	prompt := kv.Tokens(tokens[:qualityPrompt]...)

	alive := raw.context()
	if err := raw.attach(alive, nil).Prefill(ctx, prompt, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*rig{raw, int8} {
		put, err := r.attach(alive, nil).Save(ctx, prompt, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d tokens stored in %.1f MB", len(prompt.Tokens), float64(put.Bytes)/1e6)
	}
	want := teacherForced(t, alive, tokens, len(prompt.Tokens))
	alive.Close()

	restored := func(r *rig) logits.Likeness {
		t.Helper()
		c := r.context()
		defer c.Close()
		got, err := r.attach(c, nil).Restore(ctx, kv.Tokens(tokens...), 0)
		if err != nil || got.Tokens != len(prompt.Tokens) {
			t.Fatalf("restored %d tokens, expected %d: %v %v", got.Tokens, len(prompt.Tokens), got.Reason, err)
		}
		return logits.Compare(want, teacherForced(t, c, tokens, got.Tokens))
	}
	lossless, quantized := restored(raw), restored(int8)
	t.Logf("lossless rows: %v", lossless)
	t.Logf("INT8 rows: %v", quantized)

	if lossless.SameBits != lossless.Tokens {
		t.Errorf("lossless rows change the logits of %d tokens of %d", lossless.Tokens-lossless.SameBits, lossless.Tokens)
	}
	bound := func(most, noise float64) float64 {
		if noise > most {
			return overNoise * noise
		}
		return most
	}
	disagree, noisyDisagree, noisyKL := 1-quantized.Agreement(), 0.0, 0.0
	good := func() bool {
		return disagree <= bound(mostDisagree, noisyDisagree) && quantized.MeanKL <= bound(mostKL, noisyKL)
	}
	for _, n := range []int{otherA, otherB} {
		if good() && !testing.Verbose() {
			break // more noise only allows more
		}
		c := raw.context()
		raw.decode(c, prompt.Tokens, 0, n)
		noise := logits.Compare(want, teacherForced(t, c, tokens, len(prompt.Tokens)))
		c.Close()
		t.Logf("nothing stored, batches of %d instead of %d: %v", n, batch, noise)
		noisyDisagree, noisyKL = max(noisyDisagree, 1-noise.Agreement()), max(noisyKL, noise.MeanKL)
	}
	if !good() {
		t.Errorf("INT8 rows: %.2f %% of the likeliest tokens are others, expected at most %.2f %%; mean KL %.5f, expected at most %.5f",
			100*disagree, 100*bound(mostDisagree, noisyDisagree), quantized.MeanKL, bound(mostKL, noisyKL))
	}
}

// Rows of a real model that were saved with flash attention continue without it and the other way round, within twice
// of how far the two are from each other when nothing is restored.
func TestGemmaFlashAttentionShares(t *testing.T) {
	lib, api := library(t)
	path := realModel(t)
	ctx := context.Background()
	const batch, all = 256, 3 * 256 // beyond the window of 512
	o := llama.ContextOptions{Tokens: 1024, Batch: batch, MicroBatch: batch}
	on, off := ref(true), ref(false)
	base := rigFor(t, lib, api, path, o, db.Options{Codec: quant.Raw})
	tokens := realTokens(t, base.model, all+teacherBatch)
	prompt := kv.Tokens(tokens[:all]...)
	alone := map[*bool][][]float32{}
	rigs := map[*bool]*rig{on: base, off: base.withStore(db.Options{Codec: quant.Raw})} // by the attention that they save with
	for _, fa := range []*bool{on, off} {
		r := rigs[fa]
		r.opt.FlashAttention = fa
		c := r.context()
		s := r.attach(c, nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		alone[fa] = teacherForced(t, c, tokens, all)
		c.Close()
	}
	noise := logits.Compare(alone[on], alone[off])
	t.Logf("flash attention on against off, nothing restored: %v", noise)
	if noise.SameBits == noise.Tokens {
		t.Error("flash attention changes nothing, so this test shows nothing")
	}
	for _, from := range []*bool{on, off} {
		to := on
		if from == on {
			to = off
		}
		r := rigs[from]
		r.opt.FlashAttention = to
		c := r.context()
		got, err := r.attach(c, nil).Restore(ctx, kv.Tokens(tokens...), 0)
		if err != nil || got.Tokens != all {
			t.Fatalf("saved with flash attention %v, restored %d tokens with %v, expected %d: %v %v", *from, got.Tokens, *to, all, got.Reason, err)
		}
		crossed := teacherForced(t, c, tokens, all)
		c.Close()
		d := logits.Compare(alone[to], crossed)
		t.Logf("saved with flash attention %v, continued with %v: %v", *from, *to, d)
		if most := 2 * noise.Spread; d.Spread > most {
			t.Errorf("logits differ by %.3g of their spread, expected at most %.3g", d.Spread, most)
		}
		if most := 2 * noise.MeanKL; !(d.MeanKL <= most) {
			t.Errorf("mean KL %.5f, expected at most %.5f", d.MeanKL, most)
		}
	}
}
