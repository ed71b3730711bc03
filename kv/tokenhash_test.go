package kv_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// Token hashes are two bytes for each token, of nothing but that token and the span around it.
func TestTokenHashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hasher := kv.NewHasher(seeds.Draw(t, "seed"))
		p := prompts.Draw(t, "prompt")
		q := change(t, p)
		start := rapid.IntRange(0, min(len(p.Tokens), len(q.Tokens))).Draw(t, "start")
		end := rapid.IntRange(start, len(p.Tokens)).Draw(t, "end")
		dst := []byte("before")
		a := hasher.AppendTokenHashes(dst, &p, start, end)
		if string(a[:6]) != "before" || len(a) != 6+kv.TokenHashBytes*(end-start) {
			t.Fatalf("%d bytes for %d tokens", len(a)-6, end-start)
		}
		a = a[6:]
		b := hasher.AppendTokenHashes(nil, &q, start, len(q.Tokens))
		x, y := places(&p), places(&q)
		unequal, hidden := 0, 0
		for i := range min(end, len(q.Tokens)) - start {
			equal := bytes.Equal(a[i*2:i*2+2], b[i*2:i*2+2])
			x, y := x[start+i], y[start+i]
			x.scope, y.scope = "", ""
			if x == y && !equal {
				t.Fatalf("position %d is the same in both prompts and hashes differently", start+i)
			}
			if x != y {
				unequal++
				if equal {
					hidden++
				}
			}
		}
		if unequal >= 8 && hidden > unequal/2 { // a hint: one pair in 65,536 collides
			t.Fatalf("%d of %d different positions have equal hashes", hidden, unequal)
		}
	})
}

// Two images behind the same placeholder tokens are told apart by every one of their positions.
func TestTokenHashesSeeSpans(t *testing.T) {
	hasher := kv.NewHasher(kv.Seed{1})
	of := func(s kv.Span) []byte {
		p := kv.Prompt{Tokens: make([]kv.Token, 64), Spans: []kv.Span{s}}
		return hasher.AppendTokenHashes(nil, &p, 16, 48)
	}
	base := of(kv.Span{Start: 8, Len: 48, Hash: kv.Hash{1}})
	for name, s := range map[string]kv.Span{
		"content": {Start: 8, Len: 48, Hash: kv.Hash{15: 1}},
		"length":  {Start: 8, Len: 50, Hash: kv.Hash{1}},
		"offset":  {Start: 9, Len: 48, Hash: kv.Hash{1}},
		"no span": {Start: 60, Len: 1, Hash: kv.Hash{1}},
	} {
		other := of(s)
		same := 0
		for i := 0; i < len(base); i += 2 {
			if bytes.Equal(base[i:i+2], other[i:i+2]) {
				same++
			}
		}
		if same > 2 {
			t.Errorf("another %s: %d of 32 positions hash the same", name, same)
		}
	}
	if bytes.Equal(base, kv.NewHasher(kv.Seed{4: 1}).AppendTokenHashes(nil, &kv.Prompt{Tokens: make([]kv.Token, 64),
		Spans: []kv.Span{{Start: 8, Len: 48, Hash: kv.Hash{1}}}}, 16, 48)) {
		t.Error("token hashes do not depend on the seed")
	}
}
