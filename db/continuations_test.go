package db

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// continuations stores n different ways to go on from one system prompt, and returns the i-th.
func continuations(t testing.TB, n int) (*Model, func(i int) kv.Prompt) {
	o := options()
	o.Budget = 16 << 30
	o.CheckpointBytes = 64 << 20
	s := open(t, t.TempDir(), o)
	d := toy(kv.Descriptor{Name: "tiny", BlockTokens: 16, Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: 8}}})
	m := model(t, s, d)
	system := tokens(1, 160)
	prompt := func(i int) kv.Prompt {
		// All begin alike within the block, too: they part at its third token.
		return kv.Prompt{Tokens: concat(system, []kv.Token{7, 7, kv.Token(i), kv.Token(i % 3)}, tokens(i, 8))}
	}
	for i := range n {
		p := prompt(i)
		if _, err := m.Put(ctx, p, filled(d, &p, 0, len(p.Tokens)), PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return m, prompt
}

func TestRightContinuationAmongMany(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 300
	}
	m, prompt := continuations(t, n)
	r := rand.New(rand.NewPCG(1, 1))
	check := func() {
		for range 200 {
			i := r.IntN(n)
			p := prompt(i)
			expect(t, m, p, len(p.Tokens))
			// Another ending: up to where it parts.
			p.Tokens[len(p.Tokens)-2]++
			expect(t, m, p, len(p.Tokens)-2)
		}
	}
	check()
	if err := m.s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	check()
}

// BenchmarkMatchAmong compares matching the right continuation of a system prompt among 10 and among 100,000.
func BenchmarkMatchAmong(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, prompt := continuations(b, n)
			if err := m.s.Checkpoint(ctx); err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 1))
			prompts := make([]kv.Prompt, 256)
			for i := range prompts {
				prompts[i] = prompt(r.IntN(n))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p := prompts[i%len(prompts)]
				i++
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil || x.Tokens() != len(p.Tokens) {
					b.Fatal(x.Tokens(), err)
				}
				x.Close()
			}
		})
	}
}

// A filter that is built anew from the index finds the prompts that the old one found, whatever their first tokens hash to:
// the smallest hash, too, which the index could not tell from the end of a row.
func TestRebuiltFilterKnowsEveryOpening(t *testing.T) {
	s := open(t, t.TempDir(), options())
	h := s.eng.Hasher
	m := model(t, s, plain())
	var small []kv.Prompt
	for i := 0; len(small) < 3; i++ { // prompts with a token whose hash is the smallest
		p := kv.Prompt{Tokens: []kv.Token{kv.Token(i)}}
		if b := h.AppendTokenHashes(nil, &p, 0, 1); b[0] == 0 && b[1] <= 1 {
			small = append(small, kv.Prompt{Tokens: append([]kv.Token{kv.Token(i)}, tokens(i, 40)...)})
		}
	}
	for _, p := range small {
		put(t, m, p)
	}
	if err := s.eng.RebuildBloom(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range small {
		expect(t, m, p, 41)
	}
}
