package kv_test

import (
	"flag"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// TestMain has properties tried 500 times, unless told otherwise: each try takes some 50 us.
func TestMain(m *testing.M) {
	flag.Set("rapid.checks", "500")
	flag.Parse()
	os.Exit(m.Run())
}

// The generators of this package's tests. Vocabularies are small, so that prompts share things by chance, and numbers
// have their extremes.

var (
	tokens      = rapid.OneOf(rapid.Int32Range(0, 3), rapid.Int32())
	hashes      = rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) kv.Hash { return kv.Hash(b) })
	blockSizes  = rapid.SampledFrom([]int{16, 32, 64, 128})
	scopeNames  = rapid.SampledFrom([]string{"", "alice", "bob"})
	seeds       = rapid.Map(hashes, func(h kv.Hash) kv.Seed { return kv.Seed(h) })
	prints      = rapid.Map(hashes, func(h kv.Hash) kv.Fingerprint { return kv.Fingerprint(h) })
	adapterRuns = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kv.Adapter {
		return kv.Adapter{Hash: hashes.Draw(t, "hash"), Scale: rapid.Float32Range(-2, 2).Draw(t, "scale")}
	}), 0, 2)
)

// prompts is valid prompts of up to 300 tokens, with all that a prompt can have.
var prompts = rapid.Custom(func(t *rapid.T) kv.Prompt {
	p := kv.Prompt{
		Tokens:   drawTokens(t, 300),
		Adapters: adapterRuns.Draw(t, "adapters"),
		Scope:    scopeNames.Draw(t, "scope"),
	}
	p.ScopeStart = rapid.OneOf(rapid.Just(0), rapid.Just(len(p.Tokens)), rapid.IntRange(0, len(p.Tokens))).Draw(t, "scope start")
	p.Spans = drawSpans(t, 0, len(p.Tokens))
	startScope(&p)
	return p
})

// startScope moves the scope's start into the prompt and out of a span. Without a scope nothing starts.
func startScope(p *kv.Prompt) {
	p.ScopeStart = p.Clip(p.ScopeStart)
	if p.Scope == "" {
		p.ScopeStart = 0
	}
}

// drawTokens draws up to n tokens; rapid's own slices are seldom longer than a dozen, less than a block.
func drawTokens(t *rapid.T, n int) []kv.Token {
	n = rapid.OneOf(rapid.IntRange(0, n), rapid.IntRange(n/3, n)).Draw(t, "length")
	return rapid.SliceOfN(tokens, n, n).Draw(t, "tokens")
}

// drawSpans draws sorted spans inside [from, to).
func drawSpans(t *rapid.T, from, to int) []kv.Span {
	var spans []kv.Span
	for range rapid.IntRange(0, 6).Draw(t, "spans") {
		gap := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 60)).Draw(t, "gap")
		n := rapid.IntRange(1, 90).Draw(t, "span length")
		if from+gap+n > to {
			break
		}
		spans = append(spans, kv.Span{Start: from + gap, Len: n, Hash: hashes.Draw(t, "content")})
		from += gap + n
	}
	return spans
}

func clonePrompt(p kv.Prompt) kv.Prompt {
	p.Tokens, p.Spans, p.Adapters = slices.Clone(p.Tokens), slices.Clone(p.Spans), slices.Clone(p.Adapters)
	return p
}

// cutPoint draws a place where a prefix of p may end.
func cutPoint(t *rapid.T, p *kv.Prompt) int {
	return p.Clip(rapid.IntRange(0, len(p.Tokens)).Draw(t, "cut"))
}

// place is all that a prompt says about one position; prefixes are equal when their places are.
type place struct {
	token kv.Token
	span  kv.Span // of the span around it, Start being the offset in it; zero outside of spans
	scope string
}

func places(p *kv.Prompt) []place {
	out := make([]place, len(p.Tokens))
	for i, tok := range p.Tokens {
		out[i].token = tok
		if i >= p.ScopeStart {
			out[i].scope = p.Scope
		}
	}
	for _, s := range p.Spans {
		for i := range s.Len {
			out[s.Start+i].span = kv.Span{Start: i, Len: s.Len, Hash: s.Hash}
		}
	}
	return out
}

// sharedPlaces is the length of the longest common prefix of p and q.
func sharedPlaces(p, q *kv.Prompt) int {
	a, b := places(p), places(q)
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// change draws a prompt that differs from p in one thing, if it differs at all.
func change(t *rapid.T, p kv.Prompt) kv.Prompt {
	q := clonePrompt(p)
	n := len(q.Tokens)
	kinds := []string{"nothing", "scope", "scope start", "longer", "shorter", "more adapters", "other rest"}
	if n > 0 {
		kinds = append(kinds, "token", "first token", "last token")
	}
	if len(q.Spans) > 0 {
		kinds = append(kinds, "span hash", "span length", "span start", "span gone", "span halved")
	}
	if len(q.Adapters) > 0 {
		kinds = append(kinds, "adapter hash", "adapter scale", "fewer adapters", "adapters turned")
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "change")
	bump := func(i int) { q.Tokens[i] ^= 1 << rapid.IntRange(0, 31).Draw(t, "bit") }
	span := func() *kv.Span { return &q.Spans[rapid.IntRange(0, len(q.Spans)-1).Draw(t, "span")] }
	flip := func(h *kv.Hash) { h[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit") }
	adapter := func() *kv.Adapter { return &q.Adapters[rapid.IntRange(0, len(q.Adapters)-1).Draw(t, "adapter")] }
	switch kind {
	case "scope":
		q.Scope = scopeNames.Draw(t, "new scope")
	case "scope start":
		q.ScopeStart = rapid.IntRange(0, n+20).Draw(t, "new scope start")
	case "longer":
		q.Tokens = append(q.Tokens, drawTokens(t, 200)...)
		q.Spans = append(q.Spans, drawSpans(t, n, len(q.Tokens))...)
	case "shorter":
		q = q.Prefix(cutPoint(t, &q))
	case "other rest":
		q = clonePrompt(q.Prefix(cutPoint(t, &q)))
		at := len(q.Tokens)
		q.Tokens = append(q.Tokens, drawTokens(t, 200)...)
		q.Spans = append(q.Spans, drawSpans(t, at, len(q.Tokens))...)
	case "more adapters":
		q.Adapters = append(q.Adapters, kv.Adapter{Hash: hashes.Draw(t, "hash"), Scale: 1})
	case "token":
		bump(rapid.IntRange(0, n-1).Draw(t, "position"))
	case "first token":
		bump(0)
	case "last token":
		bump(n - 1)
	case "span hash":
		flip(&span().Hash)
	case "span length":
		if s := span(); s.Len > 1 {
			s.Len--
		}
	case "span start":
		if s := span(); s.Len > 1 {
			s.Start, s.Len = s.Start+1, s.Len-1
		}
	case "span gone":
		i := rapid.IntRange(0, len(q.Spans)-1).Draw(t, "span")
		q.Spans = slices.Delete(q.Spans, i, i+1)
	case "span halved": // two spans of one content instead of one
		i := rapid.IntRange(0, len(q.Spans)-1).Draw(t, "span")
		if s := q.Spans[i]; s.Len > 1 {
			half := s.Len / 2
			q.Spans[i].Len = half
			q.Spans = slices.Insert(q.Spans, i+1, kv.Span{Start: s.Start + half, Len: s.Len - half, Hash: s.Hash})
		}
	case "adapter hash":
		flip(&adapter().Hash)
	case "adapter scale":
		adapter().Scale += 1
	case "fewer adapters":
		q.Adapters = q.Adapters[:len(q.Adapters)-1]
	case "adapters turned":
		slices.Reverse(q.Adapters)
	}
	startScope(&q)
	return q
}
