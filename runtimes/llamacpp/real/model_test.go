//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// greedy continues a sequence of n tokens by the likeliest one, again and again.
func greedy(t testing.TB, c *llama.Context, n, count int) []kv.Token {
	t.Helper()
	var out []kv.Token
	for range count {
		logits := c.Logits(-1)
		best := 0
		for i := range logits {
			if logits[i] > logits[best] {
				best = i
			}
		}
		out = append(out, kv.Token(best))
		if err := c.Decode([]kv.Token{kv.Token(best)}, n, 0); err != nil {
			t.Fatal(err)
		}
		n++
	}
	return out
}

const story = "Once upon a time there was a little girl named Lily. She had a red ball and a small dog. One day, Lily and " +

	"her dog went to the park. They saw a big tree with a bird in it. The bird was sad because it could not fly. Lily wanted to " +
	"help the bird. She asked her mom for some bread. "

// A trained model tells the same story after a restore: to the token from lossless rows; from INT8 it is told how far.
func TestStories(t *testing.T) {
	lib, api := library(t)
	ctx := context.Background()
	for _, codec := range []quant.Codec{quant.Raw, 0} {
		r := rigFor(t, lib, api, stories, llama.ContextOptions{}, db.Options{Codec: codec})
		tokens, err := r.model.Tokenize(story, true)
		if err != nil {
			t.Fatal(err)
		}
		prompt := kv.Tokens(tokens...)
		a := r.context()
		s := r.attach(a, nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		logits := a.Logits(-1)
		want := greedy(t, a, len(tokens), 60)

		b := r.context()
		s = r.attach(b, func(o *llamacpp.Options) { o.Align = batchTokens })
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil || got.Tokens != (len(tokens)-1)/batchTokens*batchTokens {
			t.Fatalf("restored %d of %d: %v %v", got.Tokens, len(tokens), got.Reason, err)
		}
		if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		d := difference(logits, b.Logits(-1))
		found := greedy(t, b, len(tokens), 60)
		same := 0
		for same < len(want) && want[same] == found[same] {
			same++
		}
		t.Logf("codec %v: %d of %d tokens restored, logits differ by %.2g of their spread, the first %d of %d tokens agree: %q",
			codec, got.Tokens, len(tokens), d, same, len(want), text(r.model, want[:20]))
		if codec == quant.Raw && (d != 0 || same != len(want)) {
			t.Error("lossless rows continue differently")
		}
		if d > 0.02 {
			t.Errorf("logits differ by %g", d)
		}
	}
}

func text(m *llama.Model, tokens []kv.Token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(m.Piece(t))
	}
	return b.String()
}

// A real sliding-window model, beyond its window.
func TestGemma(t *testing.T) {
	lib, api := library(t)
	path := realModel(t)
	ctx := context.Background()
	const batch, all = 144, 5 * 144
	r := rigFor(t, lib, api, path, llama.ContextOptions{Tokens: 1024, Batch: batch, MicroBatch: batch}, db.Options{Codec: quant.Raw})
	tokens, err := r.model.Tokenize(strings.Repeat(story, 12), true)
	if err != nil {
		t.Fatal(err)
	}
	tokens = tokens[:all]
	prompt := kv.Tokens(tokens...)
	a := r.context()
	start := time.Now()
	s := r.attach(a, nil)
	t.Logf("%v: %s; attached in %v, the weights' hash included", s.Mode(), s.Why(), time.Since(start).Round(time.Millisecond))
	start = time.Now()
	if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
		t.Fatal(err)
	}
	prefill := time.Since(start)
	start = time.Now()
	put, err := s.Save(ctx, prompt, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("prefill of %d tokens %v, save %v for %.1f MiB on disk", len(tokens), prefill.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), float64(put.Bytes)/(1<<20))
	logits := a.Logits(-1)
	want := greedy(t, a, len(tokens), 8)
	for _, p := range []int{all - 1, 4 * batch, 600} {
		b := r.context()
		start = time.Now()
		s := r.attach(b, func(o *llamacpp.Options) {
			if p%batch == 0 {
				o.Align = batch
			}
		})
		attached := time.Since(start)
		start = time.Now()
		got, err := s.Restore(ctx, prompt.Prefix(p+1), 0)
		if err != nil || got.Tokens != p {
			t.Fatalf("restored %d, want %d: %v %v", got.Tokens, p, got.Reason, err)
		}
		restore := time.Since(start)
		start = time.Now()
		if err := s.Prefill(ctx, prompt, p, 0); err != nil {
			t.Fatal(err)
		}
		rest := time.Since(start)
		d := difference(logits, b.Logits(-1))
		found := greedy(t, b, len(tokens), 8)
		t.Logf("attach %v, restore of %d tokens (%.1f MiB) %v, the other %d evaluated in %v; logits differ by %.2g of their spread",
			attached.Round(time.Millisecond), p, float64(got.Bytes)/(1<<20), restore.Round(100*time.Microsecond), len(tokens)-p, rest.Round(time.Millisecond), d)
		if p%batch == 0 && d != 0 {
			t.Errorf("restored at %d: logits differ by %g of their spread", p, d)
		}
		if d > 0.05 { // batches of another size make as large a difference
			t.Errorf("restored at %d: logits differ by %g of their spread", p, d)
		}
		if p%batch == 0 && !slices.Equal(found, want) {
			t.Errorf("restored at %d: continues with %q, not %q", p, text(r.model, found), text(r.model, want))
		}
		b.Close()
	}

	// Negative control: without what the window layers remember, the logits are others.
	forget, forgets := *api, false
	forget.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		if !forgets {
			return api.StateSet(c, src, n, sequence, flags)
		}
		blob := kit.BytesAt(src, n)
		f, err := state.Learn(blob, 2)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Parse(blob)
		if err != nil {
			t.Fatal(err)
		}
		if st.Sections[1].Count() > 1 {
			for l := range st.Sections[1].Layers() {
				clear(st.Sections[1].Rows(l, kv.RoleV).Pieces[0].Mem)
			}
		}
		return api.StateSet(c, src, n, sequence, flags)
	}
	r.api = &forget
	b := r.context()
	s = r.attach(b, nil)
	forgets = true // after the canary: it would be refused
	if got, err := s.Restore(ctx, prompt, 0); err != nil || got.Tokens != all-1 {
		t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
	}
	if err := s.Prefill(ctx, prompt, all-1, 0); err != nil {
		t.Fatal(err)
	}
	d := difference(logits, b.Logits(-1))
	t.Logf("with window rows of zeros the logits differ by %.2g", d)
	if d < 0.05 {
		t.Error("negative control: window rows of zeros do not show")
	}
}
