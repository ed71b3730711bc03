package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Blocks of more tokens than the order of children looks at: the one that shares most is found all the same.
func TestLargeBlocksThatAgreeAtFirst(t *testing.T) {
	d := opaque()
	d.BlockTokens = 512
	for round := range 8 { // keys, and so the order of ties, differ in every store
		s := open(t, t.TempDir(), options())
		m := model(t, s, d)
		p := kv.Prompt{Tokens: tokens(1, 400)}
		for _, n := range []int{128, 200, 300} {
			put(t, m, p.Prefix(n))
		}
		expect(t, m, kv.Prompt{Tokens: concat(p.Tokens[:300], tokens(2+round, 50))}, 300)
		expect(t, m, p.Prefix(250), 200)
		q := plain()
		q.BlockTokens = 512
		w := model(t, s, q)
		put(t, w, kv.Prompt{Tokens: concat(p.Tokens[:100], tokens(3, 50))})
		put(t, w, kv.Prompt{Tokens: concat(p.Tokens[:180], tokens(4, 50))})
		put(t, w, kv.Prompt{Tokens: concat(p.Tokens[:140], tokens(5, 50))})
		expect(t, w, p, 180)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
