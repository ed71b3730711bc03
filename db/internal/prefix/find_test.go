package prefix_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
