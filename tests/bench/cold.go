package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// What may be in memory of a store's segments where a restore counts as cold: this share, or some pages.
const (
	coldShare = 0.005
	coldBytes = 64 << 10
)

// The names of the figures of one store that is not in memory.
const (
	restoreColdName = "restore_cold"
	restoreFresh    = "restore_cold_fresh"
	restoreLayer    = "restore_first_layer_cold"
)

// coldStore is a store of one prompt on a disk, and what was seen of its segments in the page cache.
type coldStore struct {
	*stored
	dst           *kvCache
	paths         []string
	sizes         []int64
	bytes         int64   // that a restore read
	before, after float64 // the largest, and the smallest, share of the segments in memory
}

// restoreColds restores what is not in the page cache, beside what the device gives around it: in this process, in one that has just begun,
// and layer by layer.
func restoreColds(r *run) (err error) {
	skip := func(why error) error {
		for _, name := range []string{restoreColdName, restoreFresh, restoreLayer} {
			if r.wants(name) {
				r.skip(name, "%v", why)
			}
		}
		return nil
	}
	if memory, err := memoryBacked(r.dir); err != nil {
		return skip(err)
	} else if memory {
		return skip(fmt.Errorf("%s is in memory, nothing there is ever cold: give -dir a folder on a disk", r.dir))
	}
	s, err := r.newColdStore()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if why := canCool(s.paths); why != nil {
		return skip(why)
	}
	best, tried, err := r.bestDepth(s)
	if err != nil {
		return err
	}
	var read int64
	direct := func() (took time.Duration, err error) {
		took, read, err = readDirect(s.paths, s.sizes, best)
		return took, err
	}
	var first []float64
	layers := func() (took time.Duration, err error) {
		var one time.Duration
		took, one, err = s.restoreLayers()
		first = append(first, one.Seconds())
		return took, err
	}
	times, err := interleave(r.size.rounds, direct, s.restoreHere, s.restoreFresh, layers)
	if err != nil {
		return err
	}
	if err := s.dst.compare(s.source); err != nil {
		return err
	}
	if s.before > max(coldShare, coldBytes/float64(total(s.sizes))) {
		return skip(fmt.Errorf("%.1f %% of the segments stayed in the page cache", 100*s.before))
	}
	device := rates(read, times[0])
	beside := fmt.Sprintf("beside O_DIRECT reads of the same files in order, 1 MiB each into huge pages, %d in flight: %s (tried before: %s); caches below the kernel stay",
		best, mbs(read, times[0]), tried)
	if r.wants(restoreColdName) {
		r.emit(figure{
			name: restoreColdName, unit: "MB/s", values: rates(s.bytes, times[1]), ratios: quotients(rates(s.bytes, times[1]), device), bar: atLeast(0.8),
			reference: fmt.Sprintf("stored bytes; opened anew, then Match, Restore and Close; mincore: at most %.2f %% of the segments in memory before, at least %.0f %% after; %s",
				100*s.before, 100*s.after, beside),
		})
	}
	if r.wants(restoreFresh) {
		r.emit(figure{
			name: restoreFresh, unit: "MB/s", values: rates(s.bytes, times[2]), ratios: quotients(rates(s.bytes, times[2]), device), bar: atLeast(0.8),
			reference: "the same in a process that has just begun, into rows that it has touched; " + beside,
		})
	}
	if r.wants(restoreLayer) {
		n := float64(r.size.layers)
		r.emit(figure{
			name: restoreLayer, unit: "ms", values: millis(first[1:]), ratios: quotients(first[1:], scaled(1/n, times[3])), bar: atMost(2),
			reference: fmt.Sprintf("Match and RestoreLayers until the first of %d layers is there, beside its share of the whole, %s; %s of stored bytes in all",
				r.size.layers, ms(scaled(1/n, times[3])), mbs(s.bytes, times[3])),
		})
	}
	return nil
}

func (r *run) newColdStore() (_ *coldStore, err error) {
	s := &coldStore{after: 1}
	if s.stored, err = r.storePrompt(restoreColdName, descriptor(r.size.layers, kv.F16), r.size.blocks, options()); err != nil {
		return nil, err
	}
	if err = s.Close(); err == nil {
		s.paths, err = segmentFiles(s.dir)
	}
	if err == nil {
		s.sizes, err = fileSizes(s.paths)
	}
	s.dst = newKVCache(s.desc, s.source.tokens)
	return s, err
}

// bestDepth is how many reads at a time the device likes best. It is measured before: the best of several that vary, taken from the rounds
// that count, would be more than the device can do.
func (r *run) bestDepth(s *coldStore) (depth int, tried string, err error) {
	var laps []lap
	var read int64
	for _, depth := range directDepths {
		laps = append(laps, func() (took time.Duration, err error) {
			took, read, err = readDirect(s.paths, s.sizes, depth)
			return took, err
		})
	}
	times, err := interleave(max(1, r.size.rounds/3), laps...)
	if err != nil {
		return 0, "", err
	}
	best := 0
	for i, depth := range directDepths {
		if median(times[i]) < median(times[best]) {
			best = i
		}
		tried += fmt.Sprintf(", %d: %s", depth, mbs(read, times[i]))
	}
	return directDepths[best], tried[2:], nil
}

// anew runs fn with the store opened anew, none of whose segments is in memory.
func (s *coldStore) anew(fn func() error) (err error) {
	if err := cool(s.paths); err != nil {
		return err
	}
	in, err := resident(s.paths, s.sizes)
	if err != nil {
		return err
	}
	s.before = max(s.before, in)
	if s.opened, err = openStore(s.dir, s.desc, options()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fn()
}

// restoreHere is a lap in this process.
func (s *coldStore) restoreHere() (took time.Duration, err error) {
	err = s.anew(func() (err error) {
		took, err = since(func() (err error) { s.bytes, err = s.restore(s.prompt, s.dst.rows(s.dst.tokens)); return err })
		if err != nil {
			return err
		}
		in, err := resident(s.paths, s.sizes)
		s.after = min(s.after, in)
		return err
	})
	return took, err
}

// restoreLayers is a lap that restores layer by layer; first is when the first is there.
func (s *coldStore) restoreLayers() (took, first time.Duration, err error) {
	err = s.anew(func() (err error) {
		start := time.Now()
		x, err := s.model.Match(ctx, s.prompt, db.MatchOptions{})
		if err != nil {
			return err
		}
		got, err := x.RestoreLayers(ctx, s.dst.rows(s.dst.tokens), func(int, int) {
			if first == 0 {
				first = time.Since(start)
			}
		})
		took = time.Since(start)
		if err == nil && got.Tokens != len(s.prompt.Tokens) {
			err = fmt.Errorf("a restore gave %d tokens of %d: %s", got.Tokens, len(s.prompt.Tokens), got.Reason)
		}
		return errors.Join(err, x.Close())
	})
	return took, first, err
}
