package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/db"
)

// openTimes are the times of opening stores of different sizes that were closed cleanly.
func openTimes(r *run) error {
	sizes := []int{r.size.small, r.size.middle, r.size.large}
	var laps []lap
	var last *blockStore
	for _, n := range sizes {
		b, err := r.blockStore(n)
		if err != nil {
			return err
		}
		last = b
		laps = append(laps, b.timeOpen)
	}
	laps = append(laps, func() (took time.Duration, err error) {
		var f *bolt.DB
		took, err = since(func() (err error) {
			f, err = bolt.Open(filepath.Join(last.dir, "index.db"), 0o600, &bolt.Options{Timeout: time.Second})
			return err
		})
		if err != nil {
			return 0, err
		}
		return took, f.Close()
	})
	times, err := interleave(r.size.opens, laps...)
	if err != nil {
		return err
	}
	named := []int{10_000, 100_000, 1_000_000}
	bare := times[3]
	for i, name := range []string{"open_1e4", "open_1e5", "open_1e6"} {
		f := figure{name: name, unit: "ms", values: millis(times[i]), reference: openWhat + r.size.smaller(named[i], sizes[i])}
		switch i {
		case 0:
		case 1:
			f.ratios, f.reference = quotients(times[i], times[0]), f.reference+"; beside open_1e4"
		case 2:
			f.ratios, f.bar = quotients(times[i], times[0]), atMost(2)
			byBolt := quotients(times[i], bare)
			f.reference += fmt.Sprintf("; beside open_1e4; of a bare bbolt.Open of its index.db, %s, it has %.2fx (bar: at most 5x, %s)",
				ms(bare), median(byBolt), map[bool]string{true: "met", false: "NOT met"}[median(byBolt) <= 5])
		}
		r.emit(f)
	}
	return nil
}

// openPasts are the times of opening large stores that came to be in different ways.
func openPasts(r *run) error {
	small, err := r.blockStore(r.size.small)
	if err != nil {
		return err
	}
	stores := []*blockStore{small}
	for _, p := range []past{byCheckpoints, byEvictions, byCompaction} {
		b := &blockStore{dir: filepath.Join(r.dir, fmt.Sprintf("blocks-%d-%s", r.size.pasts, p)), blocks: r.size.pasts, past: p}
		if err := r.ensure(b); err != nil {
			return err
		}
		if !r.keep {
			defer os.RemoveAll(b.dir)
		}
		stores = append(stores, b)
	}
	var laps []lap
	for _, b := range stores {
		laps = append(laps, b.timeOpen)
	}
	times, err := interleave(r.size.opens, laps...)
	if err != nil {
		return err
	}
	for i, b := range stores[1:] {
		r.emit(figure{name: "open_1e6_after_" + string(b.past), unit: "ms", values: millis(times[i+1]), ratios: quotients(times[i+1], times[0]), bar: atMost(2),
			reference: openWhat + r.size.smaller(1_000_000, b.blocks) + "; beside open_1e4"})
	}
	return nil
}

// timeOpen opens the store, and closes it when the time is taken.
func (b *blockStore) timeOpen() (took time.Duration, err error) {
	var s *db.Store
	took, err = since(func() (err error) { s, err = db.Open(ctx, b.dir, options()); return err })
	if err != nil {
		return 0, err
	}
	return took, s.Close()
}

const openWhat = "db.Open of a store that was closed cleanly, its files in the page cache"

// heapInUse is the heap in use after a collection. What pools held goes with the second.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
