//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// exact is a context in which nothing but the order of sums makes a difference.
func exact(sequences, tokens int) llama.ContextOptions {
	return llama.ContextOptions{
		Tokens: tokens, Sequences: sequences, Unified: true, FlashAttention: ref(false), CacheK: ref(llama.F32), CacheV: ref(llama.F32),
	}
}

// mostApart is how far predictions of the same visible rows may be apart in an exact context, in nats; rows that differ give over 1e-7.
const mostApart = 1e-9

// talker is a Runtime in a context.
type talker struct {
	*llamacpp.Runtime
	t testing.TB
	c *llama.Context
	s *llamacpp.Session
}

func (r *rig) runtime(change func(*llamacpp.Options)) *talker {
	r.t.Helper()
	c := r.context()
	return r.hold(c, r.attach(c, change))
}

// hold makes an attached context one that holds conversations.
func (r *rig) hold(c *llama.Context, s *llamacpp.Session) *talker {
	r.t.Helper()
	rt, err := s.Runtime(llamacpp.RuntimeOptions{Decode: c.DecodeSteps, Logits: c.Logits})
	if err != nil {
		r.t.Fatal(err)
	}
	return &talker{rt, r.t, c, s}
}

// storiesRig is the small trained model in exact contexts, with a store that keeps rows as they are.
func storiesRig(t testing.TB, o llama.ContextOptions) *rig {
	lib, api := library(t)
	return rigFor(t, lib, api, stories, o, db.Options{Codec: quant.Raw})
}

// say evaluates tokens from a position of a sequence on, and returns the logits of the last one.
func (x *talker) say(seq, from int, tokens ...kv.Token) []float32 {
	x.t.Helper()
	if err := x.Decode(context.Background(), stepsOf(seq, from, tokens...)); err != nil {
		x.t.Fatal(err)
	}
	return x.Logits(len(tokens) - 1)
}

// stepsOf are the steps of tokens from a position on, with the logits of the last one.
func stepsOf(seq, from int, tokens ...kv.Token) []kv.Step {
	var steps []kv.Step
	for i, token := range tokens {
		steps = append(steps, kv.Step{Token: token, Pos: from + i, Seq: seq, Logits: i == len(tokens)-1})
	}
	return steps
}

// copies gives a sequence the rows that another has in the ranges.
func (x *talker) copies(from, to int, ranges ...kv.Range) {
	x.t.Helper()
	for _, r := range ranges {
		if err := x.Copy(from, to, r); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *talker) removes(seq, from, to int) {
	x.t.Helper()
	if err := x.Remove(seq, kv.Range{Start: from, End: to}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *talker) stores(p kv.Prompt, seq, from, to int) {
	x.t.Helper()
	if err := x.Store(context.Background(), p, seq, kv.Range{Start: from, End: to}); err != nil {
		x.t.Fatal(err)
	}
}

// loads wants n leading tokens of the prompt to be stored.
func (x *talker) loads(p kv.Prompt, seq, n int, ranges ...kv.Range) {
	x.t.Helper()
	got, err := x.Load(context.Background(), p, seq, ranges)
	if err != nil || got != n {
		x.t.Fatalf("%d tokens are stored, want %d: %v", got, n, err)
	}
}

// like wants predictions of the same visible rows, and unlike those of others.
func like(t testing.TB, what string, want, got []float32) {
	t.Helper()
	likeTo(t, what, mostApart, want, got)
}

func likeTo(t testing.TB, what string, most float64, want, got []float32) {
	t.Helper()
	d := logits.Divergence(want, got)
	t.Logf("%s: KL %.2g", what, d)
	if !(d <= most) {
		t.Errorf("%s: KL %g, at most %g", what, d, most)
	}
}

func unlike(t testing.TB, what string, want, got []float32) {
	t.Helper()
	d := logits.Divergence(want, got)
	t.Logf("%s: KL %.2g", what, d)
	if d <= 1e-7 {
		t.Errorf("negative control: %s: KL %g", what, d)
	}
}

// recipe is a prompt whose token at a position saw something else than all that lies before.
func recipe(tokens []kv.Token, at int, hash byte) kv.Prompt {
	return kv.Prompt{Tokens: tokens, Spans: []kv.Span{{Start: at, Len: 1, Hash: kv.Hash{hash}}}}
}
