//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// Of a model with two sets of frequency factors (Phi 3, MiniCPM), llama.cpp takes one or the other by the size of the
// context: rows of short and of long contexts do not mix. Contexts of one kind do, whatever their size.
func TestLongRoPE(t *testing.T) {
	library(t)
	const original = 512
	r := newRig(t, ggufgen.LongRoPE(1, 3, 64, original), llama.ContextOptions{Tokens: original}, db.Options{Codec: quant.Raw})
	prompt := kv.Tokens(randomTokens(1, 100)...)
	logits := map[int][]float32{}
	saved := map[bool]bool{}
	for _, size := range []int{original, original / 2, 2 * original, 4 * original} {
		r.opt.Tokens = size
		logits[size] = r.evaluated(prompt, batchTokens, 0)
		c := r.context()
		s := r.attach(c, nil)
		got, err := s.Restore(context.Background(), prompt, 0)
		if err != nil {
			t.Fatal(err)
		}
		if long := size > original; (got.Tokens > 0) != saved[long] {
			t.Errorf("context of %d: %d tokens restored, one of its kind saved: %v", size, got.Tokens, saved[long])
		}
		if err := s.Prefill(context.Background(), prompt, got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		if d := difference(logits[size], c.Logits(-1)); d > 1e-3 {
			t.Errorf("context of %d: after a restore of %d tokens the logits differ by %g", size, got.Tokens, d)
		}
		if _, err := s.Save(context.Background(), prompt, 0); err != nil {
			t.Fatal(err)
		}
		saved[size > original] = true
	}
	if d := difference(logits[original], logits[2*original]); d < 1e-2 {
		t.Fatalf("logits of a short and of a long context differ by %g: nothing is tested", d)
	}
}
