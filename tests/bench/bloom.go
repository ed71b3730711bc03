package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spaolacci/murmur3"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// bloomFPR is the false-positive rate that stores are opened with unless told otherwise.
const bloomFPR = 0.001

// randomKeys are n keys of the list with that number.
func randomKeys(list uint64, n int) []kv.Key {
	r := rand.New(rand.NewPCG(list, 6))
	keys := make([]kv.Key, n)
	for i := range keys {
		binary.LittleEndian.PutUint64(keys[i][:8], r.Uint64())
		binary.LittleEndian.PutUint64(keys[i][8:], r.Uint64())
	}
	return keys
}

// filled is a filter with the keys that it was made for.
func filled(keys []kv.Key) *index.Bloom {
	return index.FillBloom(len(keys), bloomFPR, slices.Values(keys))
}

// used takes what a loop works out, so that the compiler keeps the loop.
var used atomic.Int64

// bloomLookup is one probe of a filter, beside one lookup in bbolt.
func bloomLookup(r *run) (err error) {
	store, err := r.blockStore(r.size.large)
	if err != nil {
		return err
	}
	ref, err := copyRows(filepath.Join(store.dir, "index.db"), filepath.Join(r.dir, "reference.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ref.close()) }()
	const n = 1 << 14
	keys := randomKeys(1, len(ref.keys))
	b := filled(keys)
	absent := randomKeys(2, n)
	probes := make([]kv.Key, 0, n)
	for i := range n / 2 {
		probes = append(probes, keys[i*7919%len(keys)], absent[i])
	}
	turn := uint64(0)
	laps, err := interleave(r.size.rounds, func() (time.Duration, error) {
		return since(func() error {
			found := int64(0)
			for _, k := range probes {
				if b.MayContain(k) {
					found++
				}
			}
			used.Add(found)
			return nil
		})
	}, func() (time.Duration, error) {
		turn++
		return since(func() error { return ref.get(turn, n) })
	})
	if err != nil {
		return err
	}
	ours, theirs := scaled(1e9/n, laps[0]), scaled(1e9/n, laps[1])
	r.emit(figure{name: "bloom_lookup", unit: "ns", values: ours, ratios: quotients(ours, theirs), bar: atMost(0.1),
		reference: fmt.Sprintf("MayContain of random keys, half of them present, in a filter of %s keys; beside one bbolt Get of a random key out of %s (one read transaction for all): %s ns",
			count(len(keys)), count(len(ref.keys)), number(median(theirs)))})
	return nil
}

// bloomRebuild is making a filter of 8,192 keys, beside hashing them.
func bloomRebuild(r *run) error {
	keys := randomKeys(3, 8192)
	laps, err := interleave(max(r.size.rounds, 2*r.size.opens), func() (time.Duration, error) {
		return since(func() error { used.Add(filled(keys).Keys()); return nil })
	}, func() (time.Duration, error) {
		return since(func() error {
			var sum uint64
			for i := range keys {
				sum += murmur3.Sum64(keys[i][:]) + xxhash.Sum64(keys[i][:])
			}
			used.Add(int64(sum))
			return nil
		})
	})
	if err != nil {
		return err
	}
	r.emit(figure{name: "bloom_rebuild_8192", unit: "us", values: micros(laps[0]), ratios: quotients(laps[0], laps[1]), bar: atMost(5),
		reference: fmt.Sprintf("a filter of 8,192 keys, made and filled; beside murmur3 and xxhash of each key: %s us", number(median(micros(laps[1]))))})
	return nil
}

// bloomRate is the share of absent keys that a filter with as many keys as it was made for finds.
func bloomRate(r *run) error {
	var rates []float64
	n := r.size.bloomKeys
	for i := range 3 {
		b := filled(randomKeys(uint64(10+2*i), n))
		wrong := 0
		for _, k := range randomKeys(uint64(11+2*i), n) {
			if b.MayContain(k) {
				wrong++
			}
		}
		rates = append(rates, float64(wrong)/float64(n))
	}
	r.emit(figure{name: "bloom_fpr", unit: "share", values: rates, ratios: scaled(1/bloomFPR, rates), bar: valueAtMost(0.0011),
		reference: fmt.Sprintf("%s absent keys in a filter of %s keys, three of them; beside the rate that it was made for, %g", count(n), count(n), bloomFPR)})
	return nil
}
