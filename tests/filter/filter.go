package main

import (
	"math"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// filter answers for chunks with one Bloom filter and for blocks with another. With one level both are the same.
type filter struct {
	chunk  int          // blocks in a chunk
	coarse *index.Bloom // openings, and the key of each chunk's last block, which stands for all before it
	fine   *index.Bloom // blocks
}

// The sizes that filters have in a store: db/bloom.go.
const (
	storeRate = 0.001
	storeRoom = 4     // for so many times the keys that are there
	leastKeys = 36465 // 64 KiB
)

// seedBits is what the proposal gives a key: 64 KiB for 40,000.
const seedBits = 524288.0 / 40000

// oneLevel is the filter that a store has.
func oneLevel(k *keys) *filter {
	b := index.FillBloom(room(len(k.blocks)), storeRate, slices.Values(slices.Concat(k.openings, k.blocks)))
	return &filter{k.chunk, b, b}
}

// twoLevels has the same memory, shared out by the number of keys.
func twoLevels(k *keys) *filter {
	coarse := len(k.openings) + len(k.ends)
	share := float64(coarse) / float64(coarse+len(k.blocks))
	all := float64(room(len(k.blocks)))
	return &filter{
		chunk:  k.chunk,
		coarse: index.FillBloom(int(share*all), storeRate, slices.Values(slices.Concat(k.openings, k.ends))),
		fine:   index.FillBloom(int((1-share)*all), storeRate, slices.Values(k.blocks)),
	}
}

// seedLevels has the sizes of the proposal: 13.1 bits for each key that is there, and no room for more.
func seedLevels(k *keys) *filter {
	rate := math.Exp(-seedBits * math.Ln2 * math.Ln2)
	coarse := slices.Concat(k.openings, k.ends)
	return &filter{
		chunk:  k.chunk,
		coarse: index.FillBloom(len(coarse), rate, slices.Values(coarse)),
		fine:   index.FillBloom(len(k.blocks), rate, slices.Values(k.blocks)),
	}
}

func room(blocks int) int { return max(leastKeys, storeRoom*blocks) }

// levels are the filter's Bloom filters, each once.
func (f *filter) levels() []*index.Bloom {
	if f.coarse == f.fine {
		return []*index.Bloom{f.fine}
	}
	return []*index.Bloom{f.coarse, f.fine}
}

func (f *filter) bytes() (n int64) {
	for _, b := range f.levels() {
		n += int64(b.Bits() / 8)
	}
	return n
}

// keys are what a store's filters hold.
type keys struct {
	chunk                  int
	openings, blocks, ends []kv.Key
}
