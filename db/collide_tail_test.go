package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A longer block takes the place of a tail of its own prompt only: not of another one's with the key that such a tail would have.
func TestTailOfATwinStays(t *testing.T) {
	d := broad()
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 112)...)
	q := kv.Tokens(concat(p.Tokens[:80], twinTokens(p.Tokens[80:112]), tokens(2, 16))...)
	chain := s.eng.hasher.Chain(m.Fingerprint(), d.BlockTokens, &q)
	if own := s.eng.hasher.Chain(m.Fingerprint(), d.BlockTokens, &p); chain.Partial(0, 112) != own.Key(0) {
		t.Fatal("the twins have two keys")
	}
	put(t, m, p)
	put(t, m, q)
	expect(t, m, q, 128)
	expect(t, m, p, 112)
	long := kv.Tokens(concat(p.Tokens, tokens(3, 16))...) // its own
	put(t, m, long)
	if n := s.eng.count.replaced.Load(); n != 1 {
		t.Errorf("%d tails were replaced, one was the same prompt's", n)
	}
}
