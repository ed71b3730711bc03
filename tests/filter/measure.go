package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// result is what the lookups of one way cost, for one kind of prompt.
type result struct {
	nanos        []float64 // a lookup, by round: trimmed
	lookups      int
	reads, wrong int
}

// searchers are the ways to search the store.
func (l *load) searchers() []*searcher {
	all := make([]*searcher, len(ways))
	for i, w := range ways {
		all[i] = &searcher{way: w, filter: w.make(&l.keys), store: l.store}
	}
	return all
}

// measure gives each searcher its turn with prompts of that kind in each round; the first round does not count. Between lookups, rest is
// called; the clock does not run then.
func (l *load) measure(all []*searcher, k kind, rounds, lookups int, rest func()) ([]result, error) {
	defer quiet()()
	results := make([]result, len(all))
	r := rand.New(rand.NewPCG(3, 4))
	prompts, want, got := make([]kv.Prompt, lookups), make([]int, lookups), make([]int, lookups)
	for round := range rounds + 1 {
		for turn := range all {
			i := (turn + round) % len(all) // whoever comes first finds colder caches
			s, to := all[i], &results[i]
			for j := range prompts {
				prompts[j] = k.draw(r)
				want[j] = l.stored(&prompts[j])
			}
			s.reads, s.wrong = 0, 0
			took := make([]float64, lookups)
			for j := range prompts {
				if rest != nil {
					rest()
				}
				start := time.Now()
				got[j] = s.find(&prompts[j])
				took[j] = float64(time.Since(start))
			}
			if s.err != nil {
				return nil, s.err
			}
			if !slices.Equal(got, want) {
				return nil, fmt.Errorf("%s, %s: found %d blocks, stored are %d", l.name, s.name, got, want)
			}
			if round > 0 {
				to.nanos = append(to.nanos, trimmed(took))
				to.lookups += lookups
				to.reads += s.reads
				to.wrong += s.wrong
			}
		}
	}
	return results, nil
}

// quiet collects garbage, and no more until the function that it returns is called.
func quiet() (end func()) {
	runtime.GC()
	old := debug.SetGCPercent(-1)
	debug.SetMemoryLimit(8 << 30) // prompts of many rounds are garbage, too
	return func() { debug.SetGCPercent(old) }
}

// sweep returns a function that fills the processor's caches with something else.
func sweep() func() {
	b := make([]uint64, 96<<20/8)
	return func() {
		for i := 0; i < len(b); i += 8 {
			b[i]++
		}
	}
}

// readTimes are the nanoseconds of an index read of a key that is there, and of one that is not.
func (l *load) readTimes(rounds int) (present, absent float64) {
	r := rand.New(rand.NewPCG(5, 6))
	v := l.ix.View()
	defer v.Release()
	const n = 4096
	var times [2][]float64
	for range rounds {
		for which := range times {
			probes := make([]kv.Key, n)
			for i := range probes {
				if probes[i] = l.keys.blocks[r.IntN(len(l.keys.blocks))]; which == 1 {
					probes[i] = randomKey(r)
				}
			}
			start := time.Now()
			for _, k := range probes {
				v.Get(k, 0)
			}
			times[which] = append(times[which], float64(time.Since(start))/n)
		}
	}
	return median(times[0]), median(times[1])
}

func randomKey(r *rand.Rand) (k kv.Key) {
	for i := range k {
		k[i] = byte(r.Uint32())
	}
	return k
}

// fileTimes writes each searcher's filter, and reads it in turns: the milliseconds of reading it, and the files' bytes.
func fileTimes(dir string, all []*searcher, rounds int) (millis [][]float64, bytes []int64, err error) {
	defer quiet()()
	millis, bytes = make([][]float64, len(all)), make([]int64, len(all))
	paths := make([][]string, len(all))
	uuid := kv.UUID{1}
	for i, s := range all {
		for j, b := range s.levels() {
			path := filepath.Join(dir, fmt.Sprintf("bloom-%d-%d", i, j))
			if err := index.WriteBloom(vfs.OS, dir, path, b, uuid, 1); err != nil {
				return nil, nil, err
			}
			info, err := os.Stat(path)
			if err != nil {
				return nil, nil, err
			}
			bytes[i] += info.Size()
			paths[i] = append(paths[i], path)
		}
	}
	for round := range rounds + 1 {
		for i := range all {
			start := time.Now()
			for _, path := range paths[i] {
				if _, _, err := index.ReadBloom(vfs.OS, path, uuid); err != nil {
					return nil, nil, err
				}
			}
			if round > 0 {
				millis[i] = append(millis[i], float64(time.Since(start))/1e6)
			}
		}
	}
	return millis, bytes, nil
}

// trimmed is the mean of all but the slowest tenth, which the system interrupted.
func trimmed(v []float64) float64 {
	slices.Sort(v)
	sum := 0.0
	n := max(1, len(v)*9/10)
	for _, x := range v[:n] {
		sum += x
	}
	return sum / float64(n)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// ratios are a[i]/b[i].
func ratios(a, b []float64) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return all
}
