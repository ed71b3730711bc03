package prefix_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

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
	kept := e.Inside().Bloom().Load()
	falseYes := e.Count.BloomFalse.Load()
	for evicted := range 8 {
		for range 40 {
			p := whole(r.IntN(prompts))
			p.Tokens = crashtest.Concat(p.Tokens[:1+r.IntN(len(p.Tokens))], crashtest.Tokens(1000+r.IntN(1000), r.IntN(300)))
			e.Inside().Bloom().Store(nil)
			want, _, err := m.Probe(t.Context(), p, db.MatchOptions{})
			storetest.OK(t, err)
			for name, b := range map[string]*index.Bloom{"the filter kept up": kept, "a full one": yes} {
				e.Inside().Bloom().Store(b)
				if got, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); got != want || err != nil {
					t.Fatalf("after %d evictions, %d tokens: with %s %d are found, without a filter %d (%v)", 20*evicted, len(p.Tokens), name, got, want, err)
				}
			}
			e.Inside().Bloom().Store(kept)
		}
		storetest.Must(e.Inside().EvictBlocks(20))(t)
	}
	if e.Count.BloomFalse.Load() == falseYes {
		t.Error("no false yes was met")
	}
}
