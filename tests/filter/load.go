package main

import (
	"math/rand/v2"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/tests/trace"
)

// load is a store and prompts to look up in it, by how much of them is there.
type load struct {
	*store
	kinds []kind
}

// kind is one kind of prompt.
type kind struct {
	name string
	draw func(r *rand.Rand) kv.Prompt
}

const (
	manyTokens  = 8192 // of a synthetic prompt: 128 blocks
	manyBlocks  = 64   // tokens of a block there
	evictedPart = 9    // one prompt in so many lost its second half: a store rebuilds its filter when an eighth of the blocks has gone
)

// synthetic is a store of so many blocks, in prompts that share nothing.
func synthetic(dir string, blocks int) (*load, error) {
	s, err := newStore("synthetic", dir, manyBlocks)
	if err != nil {
		return nil, err
	}
	prompts := blocks * manyBlocks / manyTokens
	for i := range prompts {
		if err := s.add(prompt(i)); err != nil {
			return nil, err
		}
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	for i := 0; i < prompts; i += evictedPart {
		if err := s.evict(prompt(i), manyTokens/manyBlocks/2); err != nil {
			return nil, err
		}
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	whole := func(r *rand.Rand) int { return r.IntN(prompts/evictedPart)*evictedPart + 1 }
	return &load{s, []kind{
		{"nothing", func(r *rand.Rand) kv.Prompt { return *prompt(prompts + r.IntN(1<<30)) }},
		{"all", func(r *rand.Rand) kv.Prompt { return *prompt(whole(r)) }},
		{"middle", func(r *rand.Rand) kv.Prompt {
			p, other := prompt(whole(r)), prompt(prompts+r.IntN(1<<30))
			from := 1 + r.IntN(manyTokens-1)
			copy(p.Tokens[from:], other.Tokens[from:])
			return *p
		}},
		{"evicted", func(r *rand.Rand) kv.Prompt { return *prompt(whole(r) - 1) }},
	}}, nil
}

// prompt has tokens that no other number's has, from the first on.
func prompt(i int) *kv.Prompt {
	r := rand.New(rand.NewPCG(uint64(i), 9))
	p := &kv.Prompt{Tokens: make([]kv.Token, manyTokens)}
	for k := range p.Tokens {
		p.Tokens[k] = kv.Token(r.Uint32N(1 << 17))
	}
	return p
}

// recorded is a store of the first half of a trace. What is looked up is its second half, by how much of it was there.
func recorded(name, dir string, requests []trace.Request) (*load, error) {
	s, err := newStore(name, dir, trace.MooncakeBlockTokens)
	if err != nil {
		return nil, err
	}
	half := len(requests) / 2
	for _, r := range requests[:half] {
		if err := s.add(requested(r)); err != nil {
			return nil, err
		}
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	l := &load{store: s}
	found := map[string][]trace.Request{}
	for _, r := range requests[half:] {
		p := requested(r)
		what := "middle"
		switch n := s.stored(p); {
		case n == 0:
			what = "nothing"
		case n == len(r.Blocks):
			what = "all"
		}
		found[what] = append(found[what], r)
	}
	for _, what := range []string{"nothing", "all", "middle"} {
		if some := found[what]; len(some) > 0 {
			l.kinds = append(l.kinds, kind{what, func(r *rand.Rand) kv.Prompt { return *requested(some[r.IntN(len(some))]) }})
		}
	}
	return l, nil
}

// requested is a prompt with the request's blocks: a trace has no tokens, so the number of a block stands for each of its own.
func requested(r trace.Request) *kv.Prompt {
	p := &kv.Prompt{Tokens: make([]kv.Token, 0, len(r.Blocks)*trace.MooncakeBlockTokens)}
	for _, id := range r.Blocks {
		for range trace.MooncakeBlockTokens {
			p.Tokens = append(p.Tokens, kv.Token(id))
		}
	}
	return p
}
