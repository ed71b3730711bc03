package write_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// continuations stores n different ways to go on from one system prompt, and returns the i-th.
func continuations(t testing.TB, n int) (*db.Store, *db.Model, func(i int) kv.Prompt) {
	o := storetest.Options()
	o.Budget = 16 << 30
	o.CheckpointBytes = 64 << 20
	s := storetest.Open(t, t.TempDir(), o)
	d := crashtest.Toy(kv.Descriptor{Name: "tiny", BlockTokens: 16, Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: 8}}})
	m := storetest.Model(t, s, d)
	system := crashtest.Tokens(1, 160)
	prompt := func(i int) kv.Prompt {
		// All begin alike within the block, too: they part at its third token.
		return kv.Prompt{Tokens: crashtest.Concat(system, []kv.Token{7, 7, kv.Token(i), kv.Token(i % 3)}, crashtest.Tokens(i, 8))}
	}
	for i := range n {
		p := prompt(i)
		storetest.Must(m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{}))(t)
	}
	return s, m, prompt
}

func TestRightContinuationAmongMany(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 300
	}
	s, m, prompt := continuations(t, n)
	r := rand.New(rand.NewPCG(1, 1))
	check := func() {
		for range 200 {
			i := r.IntN(n)
			p := prompt(i)
			storetest.Expect(t, m, p, len(p.Tokens))
			// Another ending: up to where it parts.
			p.Tokens[len(p.Tokens)-2]++
			storetest.Expect(t, m, p, len(p.Tokens)-2)
		}
	}
	check()
	storetest.OK(t, s.Checkpoint(t.Context()))
	check()
}

// A filter that is built anew from the index finds the prompts that the old one found, whatever their first tokens hash to:
// the smallest hash, too, which the index could not tell from the end of a row.
func TestRebuiltFilterKnowsEveryOpening(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	h := storetest.Hasher(t, s.Dir())
	m := storetest.Model(t, s, crashtest.Plain())
	var small []kv.Prompt
	for i := 0; len(small) < 3; i++ { // prompts with a token whose hash is the smallest
		p := kv.Prompt{Tokens: []kv.Token{kv.Token(i)}}
		if b := h.AppendTokenHashes(nil, &p, 0, 1); b[0] == 0 && b[1] <= 1 {
			small = append(small, kv.Prompt{Tokens: append([]kv.Token{kv.Token(i)}, crashtest.Tokens(i, 40)...)})
		}
	}
	for _, p := range small {
		storetest.Put(t, m, p)
	}
	storetest.OK(t, s.Close())
	storetest.Remove(t, s.Dir(), storetest.BloomFile)
	s = storetest.Open(t, s.Dir(), storetest.Options())
	storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
	m = storetest.Model(t, s, crashtest.Plain())
	for _, p := range small {
		storetest.Expect(t, m, p, 41)
	}
}
