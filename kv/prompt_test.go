package kv_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// walkBlocks cuts p by walking over its positions: a block ends when it is full, where the scope begins, and at the end.
func walkBlocks(p *kv.Prompt, blockTokens int) [][2]int {
	var out [][2]int
	start := 0
	for pos := 1; pos <= len(p.Tokens); pos++ {
		if pos-start == blockTokens || pos == len(p.Tokens) || (p.Scope != "" && pos == p.ScopeStart) {
			out = append(out, [2]int{start, pos})
			start = pos
		}
	}
	return out
}

// The four questions about blocks agree with a walk over the positions.
func TestBlocksAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, size := prompts.Draw(t, "prompt"), blockSizes.Draw(t, "block tokens")
		if err := p.Validate(); err != nil {
			t.Fatalf("the generator makes an invalid prompt: %v", err)
		}
		want := walkBlocks(&p, size)
		if n := p.Blocks(size); n != len(want) {
			t.Fatalf("%d blocks, want %d", n, len(want))
		}
		endless := clonePrompt(p) // where blocks end if the prompt goes on: in its scope, if that has begun
		endless.Tokens = append(endless.Tokens, make([]kv.Token, 2*size)...)
		if p.ScopeStart == len(p.Tokens) {
			endless.ScopeStart = len(endless.Tokens)
		}
		for i, w := range want {
			start, end := p.Block(i, size)
			if start != w[0] || end != w[1] {
				t.Fatalf("block %d is [%d, %d), want %v", i, start, end, w)
			}
			for pos := start; pos < end; pos++ {
				if at := p.BlockAt(pos, size); at != i {
					t.Fatalf("position %d is in block %d, want %d", pos, at, i)
				}
			}
			_, full := endless.Block(i, size)
			if got := p.BlockCapacityEnd(i, size); got != full {
				t.Fatalf("block %d [%d, %d) has capacity to %d, want %d", i, start, end, got, full)
			}
		}
	})
}

// The blocks of a prefix are the longer prompt's, its tail too as far as it goes.
func TestBlocksOfPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, size := prompts.Draw(t, "prompt"), blockSizes.Draw(t, "block tokens")
		q := p.Prefix(cutPoint(t, &p))
		for i := range q.Blocks(size) {
			start, end := q.Block(i, size)
			pStart, pEnd := p.Block(i, size)
			if start != pStart || end != min(pEnd, len(q.Tokens)) {
				t.Fatalf("block %d is [%d, %d) of the prefix of %d, but [%d, %d) of the whole", i, start, end, len(q.Tokens), pStart, pEnd)
			}
			whole, capacity := p.BlockCapacityEnd(i, size), q.BlockCapacityEnd(i, size)
			if begun := p.ScopeStart < len(q.Tokens); capacity < whole || capacity > whole && (begun || whole != p.ScopeStart) {
				t.Fatalf("block %d of the prefix of %d has capacity to %d, of the whole to %d", i, len(q.Tokens), capacity, whole)
			}
			if end < q.BlockCapacityEnd(i, size) && i != q.Blocks(size)-1 {
				t.Fatalf("block %d is a tail, though not the last", i)
			}
		}
	})
}

// Clip gives the nearest position below that no span covers from both sides, and a prefix that ends there keeps
// what lies before it, and nothing else.
func TestClipAndPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := prompts.Draw(t, "prompt")
		n := rapid.IntRange(-5, len(p.Tokens)+5).Draw(t, "n")
		inside := func(n int) bool {
			return slices.ContainsFunc(p.Spans, func(s kv.Span) bool { return s.Start < n && n < s.Start+s.Len })
		}
		want := min(max(n, 0), len(p.Tokens))
		for inside(want) {
			want--
		}
		got := p.Clip(n)
		if got != want || p.Clip(got) != got {
			t.Fatalf("Clip(%d) = %d, want %d; again %d", n, got, want, p.Clip(got))
		}
		before := clonePrompt(p)
		q := p.Prefix(got)
		if err := q.Validate(); err != nil {
			t.Fatalf("prefix of %d: %v", got, err)
		}
		if len(q.Tokens) != got || !slices.Equal(places(&q), places(&p)[:got]) {
			t.Fatalf("the prefix of %d tokens says something else than the prompt", got)
		}
		if q.Scope != p.Scope || q.ScopeStart != min(p.ScopeStart, got) || !slices.Equal(q.Adapters, p.Adapters) {
			t.Fatal("the prefix lost its scope or adapters")
		}
		_ = append(q.Tokens, 99) // the prefix shares memory, and must not write what lies beyond it
		_ = append(q.Spans, kv.Span{})
		if !slices.Equal(p.Tokens, before.Tokens) || (got < len(p.Tokens) && !slices.Equal(p.Spans, before.Spans)) {
			t.Fatal("appending to a prefix wrote into the prompt")
		}
	})
}

// Validate refuses exactly what cannot be: what it lets pass is cut and hashed without a panic.
func TestPromptValidate(t *testing.T) {
	fair := rapid.IntRange(0, 30)
	extreme := rapid.OneOf(fair, fair, fair, fair, rapid.SampledFrom([]int{-1, 0, 63, 64, 65, math.MinInt, math.MinInt + 1, math.MaxInt - 1, math.MaxInt}))
	rapid.Check(t, func(t *rapid.T) {
		p := kv.Prompt{Tokens: make([]kv.Token, rapid.SampledFrom([]int{64, 64, 20, 1, 0}).Draw(t, "tokens")), Scope: scopeNames.Draw(t, "scope")}
		p.ScopeStart = extreme.Draw(t, "scope start")
		valid := p.ScopeStart >= 0 && p.ScopeStart <= len(p.Tokens) && (p.Scope != "" || p.ScopeStart == 0)
		end := 0
		for range rapid.IntRange(0, 3).Draw(t, "spans") {
			s := kv.Span{Start: extreme.Draw(t, "start"), Len: extreme.Draw(t, "length")}
			p.Spans = append(p.Spans, s)
			n := len(p.Tokens)
			valid = valid && s.Start >= end && s.Start <= n && s.Len >= 1 && s.Len <= n && s.Start+s.Len <= n
			end = s.Start + s.Len
			valid = valid && (p.Scope == "" || p.ScopeStart <= s.Start || p.ScopeStart >= end)
		}
		for _, scale := range rapid.SliceOfN(rapid.SampledFrom([]float32{0, 1, -2, 0.5, float32(math.Inf(1)), float32(math.NaN())}), 0, 2).Draw(t, "scales") {
			p.Adapters = append(p.Adapters, kv.Adapter{Scale: scale})
			valid = valid && !math.IsNaN(float64(scale)) && !math.IsInf(float64(scale), 0)
		}
		err := p.Validate()
		if (err == nil) != valid || (err != nil && !errors.Is(err, kv.ErrPrompt)) {
			t.Fatalf("%+v: %v, want valid = %v", p, err, valid)
		}
		if err != nil {
			return
		}
		c := kv.NewHasher(kv.Seed{1}).Chain(kv.Fingerprint{2}, 16, &p)
		c.Opening()
		for i := range c.Len() {
			c.Key(i)
		}
		p.Clip(extreme.Draw(t, "clip"))
	})
}

// A scope that cannot begin where the prompt says is refused with both numbers: characters may have been taken for tokens.
func TestScopeThatCannotBegin(t *testing.T) {
	for _, x := range []struct {
		scope string
		start int
		says  []string
	}{
		{"alice", 105, []string{"105", "100 tokens"}},
		{"alice", 101, []string{"101", "100 tokens"}},
		{"alice", 100, nil},
		{"alice", 0, nil},
		{"", 1, []string{"scope starts at 1", "Scope is empty"}},
		{"", 105, []string{"105", "Scope is empty"}},
	} {
		p := kv.Prompt{Tokens: make([]kv.Token, 100), Scope: x.scope, ScopeStart: x.start}
		err := p.Validate()
		if (err != nil) != (x.says != nil) || err != nil && !errors.Is(err, kv.ErrPrompt) {
			t.Fatalf("scope %q at %d: %v", x.scope, x.start, err)
		}
		for _, n := range []int{100, 99, 50, 1} { // a mistake stays one, whatever is cut off
			if q := p.Prefix(n); (q.Validate() != nil) != (err != nil) {
				t.Fatalf("scope %q at %d: %v, its prefix of %d tokens: %v", x.scope, x.start, err, n, q.Validate())
			}
		}
		for _, s := range x.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("scope %q at %d: %v does not say %q", x.scope, x.start, err, s)
			}
		}
	}
}

// Tokens is a prompt of nothing but its tokens.
func TestTokens(t *testing.T) {
	p := kv.Tokens(3, 1, 2)
	if !slices.Equal(p.Tokens, []kv.Token{3, 1, 2}) || p.Validate() != nil || p.Blocks(16) != 1 {
		t.Errorf("%+v", p)
	}
	if empty := kv.Tokens(); empty.Validate() != nil || empty.Blocks(16) != 0 {
		t.Error("the empty prompt has blocks or is invalid")
	}
}
