package prefix_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Blocks of more tokens than the order of children looks at: the one that shares most is found all the same.
func TestLargeBlocksThatAgreeAtFirst(t *testing.T) {
	d := crashtest.Opaque()
	d.BlockTokens = 512
	for round := range 8 { // keys, and so the order of ties, differ in every store
		s, m := storetest.Fresh(t, storetest.Options(), d)
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 400)}
		for _, n := range []int{128, 200, 300} {
			storetest.Put(t, m, p.Prefix(n))
		}
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:300], crashtest.Tokens(2+round, 50))}, 300)
		storetest.Expect(t, m, p.Prefix(250), 200)
		q := crashtest.Plain()
		q.BlockTokens = 512
		w := storetest.Model(t, s, q)
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:100], crashtest.Tokens(3, 50))})
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:180], crashtest.Tokens(4, 50))})
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:140], crashtest.Tokens(5, 50))})
		storetest.Expect(t, w, p, 180)
		storetest.OK(t, s.Close())
	}
}

// Where a stored prefix ends does not depend on what the Bloom filter says beyond it: the one that is kept up, which still holds what was
// evicted, one that says yes to everything, and none find the same, for prompts that end or diverge anywhere.
func TestBorderWhateverTheFilterSays(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	e := storetest.Engine(s)
	r := rand.New(rand.NewPCG(1, 2))
	const prompts, n = 12, 40 * 16
	whole := func(i int) kv.Prompt {
		return kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(100+i%3, 64), crashtest.Tokens(i, n))}
	}
	for i := range prompts {
		storetest.Put(t, m, whole(i))
	}
	yes := index.NewBloom(64, 0.001)
	for i := range 1 << 12 {
		yes.Add(kv.Key{byte(i), byte(i >> 8), 1})
	}
	if yes.Fill() < 1 {
		t.Fatalf("a filter that is to say yes to everything has %.3f of its bits", yes.Fill())
	}
	kept := e.Filter.Current().Load()
	falseYes := e.Count.BloomFalse.Load()
	for evicted := range 8 {
		for range 40 {
			p := whole(r.IntN(prompts))
			p.Tokens = crashtest.Concat(p.Tokens[:1+r.IntN(len(p.Tokens))], crashtest.Tokens(1000+r.IntN(1000), r.IntN(300)))
			e.Filter.Current().Store(nil)
			want, _, err := m.Probe(t.Context(), p, db.MatchOptions{})
			storetest.OK(t, err)
			for name, b := range map[string]*index.Bloom{"the filter kept up": kept, "a full one": yes} {
				e.Filter.Current().Store(b)
				if got, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); got != want || err != nil {
					t.Fatalf("after %d evictions, %d tokens: with %s %d are found, without a filter %d (%v)", 20*evicted, len(p.Tokens), name, got, want, err)
				}
			}
			e.Filter.Current().Store(kept)
		}
		storetest.Must(e.Inside().EvictBlocks(20))(t)
	}
	if e.Count.BloomFalse.Load() == falseYes {
		t.Error("no false yes was met")
	}
}
