package main

import (
	"math/rand/v2"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// alone asks filters of more keys than any cache holds, without hashing prompts and without an index: the most that levels can be worth.
// Returned are the nanoseconds of an opening that is not there, and of a search in a prompt of 128 blocks, by filter and round.
func alone(blocks, rounds int, makes ...func(*keys) *filter) (bytes []int64, absent, search [][]float64) {
	r := rand.New(rand.NewPCG(7, 8))
	const perPrompt = 128
	k := &keys{chunk: chunkTokens / manyBlocks}
	k.blocks = make([]kv.Key, blocks/perPrompt*perPrompt)
	for i := range k.blocks {
		k.blocks[i] = randomKey(r)
		if i%perPrompt == 0 {
			k.openings = append(k.openings, randomKey(r))
		}
		if (i+1)%k.chunk == 0 {
			k.ends = append(k.ends, k.blocks[i])
		}
	}
	filters := make([]*filter, len(makes))
	for i, mk := range makes {
		filters[i] = mk(k)
		bytes = append(bytes, filters[i].bytes())
	}
	absent, search = make([][]float64, len(makes)), make([][]float64, len(makes))
	defer quiet()()
	const lookups = 1 << 14
	others, chain := make([]kv.Key, lookups), make([]kv.Key, perPrompt)
	for round := range rounds + 1 {
		for turn := range filters {
			i := (turn + round) % len(filters)
			f := filters[i]
			for j := range others {
				others[j] = randomKey(r)
			}
			start := time.Now()
			for _, o := range others {
				used = f.coarse.MayContain(o) != used
			}
			missed := time.Since(start)
			var took time.Duration
			for range lookups / perPrompt {
				from, shared := r.IntN(len(k.openings)), r.IntN(perPrompt+1)
				copy(chain, k.blocks[from*perPrompt:][:shared])
				copy(chain[shared:], others)
				start := time.Now()
				used = f.search(k.openings[from], chain) == shared != used
				took += time.Since(start)
			}
			if round > 0 {
				absent[i] = append(absent[i], float64(missed)/lookups)
				search[i] = append(search[i], float64(took)/(lookups/perPrompt))
			}
		}
	}
	return bytes, absent, search
}

// used takes what a loop works out, so that the compiler keeps the loop.
var used bool

// search finds the first block that the filter does not hold: by halves, with two levels first among the chunks.
func (f *filter) search(opening kv.Key, chain []kv.Key) int {
	if !f.coarse.MayContain(opening) {
		return 0
	}
	var s searcher
	lo, hi := 0, len(chain)
	if f.coarse != f.fine {
		n := s.halve(0, hi/f.chunk, func(c int) bool { return f.coarse.MayContain(chain[(c+1)*f.chunk-1]) })
		lo, hi = n*f.chunk, min(hi, (n+1)*f.chunk-1)
	}
	return s.halve(lo, hi, func(i int) bool { return f.fine.MayContain(chain[i]) })
}
