package conformance

import (
	"context"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
)

// Kit is how a runtime is made for the tests.
type Kit struct {
	// New returns a runtime with an empty cache, each time over the same model of the same store. Two of them live at a time. What has to
	// be closed, t.Cleanup closes.
	New func(t testing.TB) chat.Runtime

	// Vocabulary: the tokens from 0 to it can be decoded.
	Vocabulary int

	// Tolerance is how far two computations of one thing may be apart: KL divergence of the predictions, in nats. 0: not by a bit.
	Tolerance float64
}

// check is one test with its runtime.
type check struct {
	testing.TB
	Kit
	r   chat.Runtime
	rng *rand.Rand
}

var background = context.Background()

func (k Kit) begin(t testing.TB, name string) *check {
	h := fnv.New64()
	h.Write([]byte(name))
	return &check{t, k, k.New(t), rand.New(rand.NewPCG(h.Sum64(), 1))}
}

// other is the same test with another runtime, over the same store.
func (c *check) other() *check {
	o := *c
	o.r = c.New(c.TB)
	return &o
}

// tokens are of a prompt that no other test has.
func (c *check) tokens(n int) []kv.Token {
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = kv.Token(c.rng.IntN(c.Vocabulary))
	}
	return out
}

// decode appends tokens to a sequence, at positions from from on, in batches of at most most steps, and returns the scores after each.
func (c *check) decode(seq, from int, tokens []kv.Token, most int) [][]float32 {
	c.Helper()
	var out [][]float32
	most = min(most, c.r.Limits().Batch)
	for len(tokens) > 0 {
		n := min(most, len(tokens))
		steps := stepsOf(seq, from, tokens[:n])
		c.must(c.r.Decode(background, steps))
		for i := range steps {
			out = append(out, c.logits(i))
		}
		from, tokens = from+n, tokens[n:]
	}
	return out
}

// fill is decode whose scores nobody wants.
func (c *check) fill(seq, from int, tokens []kv.Token) {
	c.Helper()
	for len(tokens) > 0 {
		n := min(c.r.Limits().Batch, len(tokens))
		steps := stepsOf(seq, from, tokens[:n])
		for i := range steps {
			steps[i].Logits = false
		}
		c.must(c.r.Decode(background, steps))
		from, tokens = from+n, tokens[n:]
	}
}

func stepsOf(seq, from int, tokens []kv.Token) []kv.Step {
	steps := make([]kv.Step, len(tokens))
	for i, t := range tokens {
		steps[i] = kv.Step{Token: t, Pos: from + i, Seq: seq, Logits: true}
	}
	return steps
}

func (c *check) logits(step int) []float32 {
	c.Helper()
	l := c.r.Logits(step)
	if len(l) == 0 {
		c.Fatalf("step %d has no logits", step)
	}
	return slices.Clone(l)
}

func (c *check) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// copy is Copy of several ranges.
func (c *check) copy(from, to int, ranges ...kv.Range) {
	c.Helper()
	for _, r := range ranges {
		c.must(c.r.Copy(from, to, r))
	}
}

// apart is how far two answers are apart, in nats; infinity where one is none.
func (c *check) apart(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		if math.IsNaN(float64(a[i])) || math.IsNaN(float64(b[i])) {
			return math.Inf(1)
		}
	}
	if c.Tolerance == 0 {
		if slices.Equal(a, b) {
			return 0
		}
		return max(math.Abs(logits.Divergence(a, b)), math.SmallestNonzeroFloat64)
	}
	return math.Abs(logits.Divergence(a, b)) // rounding makes less than 0 of almost nothing
}

// same demands that two answers agree.
func (c *check) same(what string, want, got []float32) {
	c.Helper()
	if d := c.apart(want, got); !(d <= c.Tolerance) {
		c.Errorf("%s: %.3g nats apart, tolerance %.3g", what, d, c.Tolerance)
	}
}

// differ demands that two answers disagree: it is the control of a same.
func (c *check) differ(what string, a, b []float32) {
	c.Helper()
	if d := c.apart(a, b); !(d > c.Tolerance) {
		c.Errorf("%s: %.3g nats apart, with a tolerance of %.3g a wrong answer passes", what, d, c.Tolerance)
	}
}

// clear takes everything from a sequence.
func (c *check) clear(seq int) {
	c.Helper()
	c.must(c.r.Remove(seq, whole))
}

var whole = kv.Range{Start: 0, End: math.MaxInt32}

func span(start, end int) kv.Range { return kv.Range{Start: start, End: end} }
