package main

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// way is a way to search: which filter, and how it is asked.
type way struct {
	name string
	make func(*keys) *filter
	from order
	late bool // the index is asked once, for the deepest block that the filter lets through; else at each of its yeses
}

// order is what is asked for first. In the end, the first block that is not stored is found by halves.
type order int

const (
	halves      order = iota // blocks, by halves
	growing                  // blocks 1, 3, 7, 15, 31, and then each 16th, until the first no: what comes behind is not hashed
	chunkHalves              // chunks, by halves
	chunkSteps               // chunks one by one, until the first no
)

var ways = []way{
	{"one level, each yes read in the index", oneLevel, halves, false},
	{"two levels, each yes read", twoLevels, chunkHalves, false},
	{"one level, the last yes read", oneLevel, halves, true},
	{"two levels, the last yes read", twoLevels, chunkHalves, true},
	{"one level, growing steps, the last yes read", oneLevel, growing, true},
	{"two levels, chunk by chunk, the last yes read", twoLevels, chunkSteps, true},
	{"two levels of the seed's sizes, the same", seedLevels, chunkSteps, true},
}

// searcher looks prompts up in a store by one way. Not safe for concurrent use.
type searcher struct {
	way
	*filter
	store *store
	view  index.View
	chain kv.Chain

	reads, wrong int // index reads; those that the filter should have spared
	err          error
}

// find returns how many leading blocks of the prompt are stored. A stored block's prefix is stored: docs/design.md says why.
func (s *searcher) find(p *kv.Prompt) int {
	s.chain.Reset(s.store.hasher, s.store.model, s.store.blockTokens, p)
	if !s.coarse.MayContain(s.chain.Opening()) {
		return 0
	}
	s.store.ix.Look(&s.view)
	defer s.view.Release()
	lo, hi := s.first(s.chain.Len())
	lo = s.halve(lo, hi, func(i int) bool { return s.holds(s.fine, i) })
	if !s.late || lo == 0 {
		return lo
	}
	if s.fine.MayContain(s.chain.Key(lo-1)) && s.stored(lo-1) {
		return lo
	}
	return s.halve(0, lo-1, func(i int) bool { return s.fine.MayContain(s.chain.Key(i)) && s.stored(i) })
}

// first narrows down where the first of n blocks is that is not stored: those before lo are, or so the filter says, and hi is not.
func (s *searcher) first(n int) (lo, hi int) {
	end := func(c int) bool { return s.holds(s.coarse, (c+1)*s.chunk-1) }
	chunks, all := 0, n/s.chunk
	switch s.from {
	case halves:
		return 0, n
	case growing:
		for step := 1; lo < n; step = min(2*step, 16) {
			next := min(lo+step, n)
			if !s.holds(s.fine, next-1) {
				return lo, next - 1
			}
			lo = next
		}
		return n, n
	case chunkHalves:
		chunks = s.halve(0, all, end)
	case chunkSteps:
		for chunks < all && end(chunks) {
			chunks++
		}
	}
	if lo = chunks * s.chunk; chunks == all {
		return lo, n
	}
	return lo, lo + s.chunk - 1
}

// halve is a binary search for the first i in [lo, hi) that is not held, or hi.
func (s *searcher) halve(lo, hi int, held func(i int) bool) int {
	for lo < hi {
		if mid := int(uint(lo+hi+1)/2) - 1; held(mid) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// holds asks a filter for block i, and the index at once if this way does so.
func (s *searcher) holds(b *index.Bloom, i int) bool {
	return b.MayContain(s.chain.Key(i)) && (s.late || s.stored(i))
}

// stored asks the index for block i.
func (s *searcher) stored(i int) bool {
	_, ok, err := s.view.Get(s.chain.Key(i), 0)
	s.err = err
	s.reads++
	if !ok {
		s.wrong++
	}
	return ok
}
