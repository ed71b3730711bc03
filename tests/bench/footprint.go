package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// footprint is what a process takes of its system.
type footprint struct {
	Heap        int64     // bytes in use after a collection, without the store's Bloom filter
	Filter      int64     // the Bloom filter's
	Resident    residence // its own memory, and of files that are mapped
	Maps        int       // lines of /proc/self/maps
	Descriptors int
	Threads     int
}

// taken is what a process takes with s open, which may be nil.
func taken(s *opened) (f footprint, err error) {
	if s != nil {
		st, err := s.Stats()
		for end := time.Now().Add(20 * time.Second); err == nil && st.BloomBytes == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // it is being read
			st, err = s.Stats()
		}
		if err != nil {
			return f, err
		}
		f.Filter = st.BloomBytes
	}
	f.Heap = heapInUse() - f.Filter
	if f.Resident, err = residentSet(); err != nil {
		return f, err
	}
	f.Maps, f.Descriptors, f.Threads, err = systemObjects()
	return f, err
}

// The names of the figures of one size.
func footprintNames(size string) []string {
	return []string{"heap_" + size, "maps_" + size, "descriptors_" + size, "threads_" + size}
}

// storeFootprints are what a process takes more with a store open that has so many blocks, all over which it has matched and restored,
// beside a small one.
func (r *run) storeFootprints(size string, named int, stores ...*blockStore) error {
	names := footprintNames(size)
	if _, _, _, err := systemObjects(); err != nil {
		for _, name := range names {
			if r.wants(name) {
				r.skip(name, "%v", err)
			}
		}
		return nil
	}
	values := make([][4][]float64, len(stores))
	var filter int64
	for range 3 {
		for i, b := range stores {
			c := child{Do: childStore, Dir: b.dir, Blocks: b.blocks}
			if err := c.run(); err != nil {
				return fmt.Errorf("a store of %d blocks in a process of its own: %w", b.blocks, err)
			}
			before, after := c.Footprints[0], c.Footprints[1]
			filter = after.Filter
			for k, v := range []float64{
				float64(max(0, after.Heap-before.Heap)) / (1 << 20), float64(after.Maps - before.Maps), float64(after.Descriptors - before.Descriptors), float64(after.Threads),
			} {
				values[i][k] = append(values[i][k], v)
			}
		}
	}
	last := len(stores) - 1
	what := []string{
		fmt.Sprintf("heap in use less that before Open, less the Bloom filter's %.1f MiB, runtime.GC before each reading", float64(filter)/(1<<20)),
		"lines of /proc/self/maps less those before Open", "open files less those before Open", "threads of the process, Go's own included",
	}
	for k, name := range names {
		f := figure{name: name, unit: []string{"MiB", "maps", "files", "threads"}[k], values: values[last][k]}
		if k == 0 {
			f.bar = valueAtMost(8)
		}
		f.reference = what[k] + "; a process that has opened the store and then matched and restored " + count(touched) + " prompts of it, or all" + r.size.smaller(named, stores[last].blocks)
		for i, b := range stores[:last] {
			f.reference += fmt.Sprintf("; with %s blocks: %s", count(b.blocks), number(median(values[i][k])))
		}
		r.emit(f)
	}
	return nil
}

// touched is how many prompts are restored before a process with a store of many blocks is looked at.
const touched = 512

// store is that process.
func (c *child) store() error {
	b := &blockStore{dir: c.Dir, blocks: c.Blocks}
	rows := newKVCache(tiny, manyTokens)
	before, err := taken(nil)
	if err != nil {
		return err
	}
	s, err := b.open()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(9, 10))
	for i := range min(touched, b.whole()) {
		at := i
		if b.whole() > touched {
			at = random.IntN(b.whole())
		}
		if _, err := s.restore(b.prompt(at), rows.rows(manyTokens)); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	after, err := taken(s)
	c.Footprints = []footprint{before, after}
	return errors.Join(err, s.Close())
}

// openFootprints are the footprints of stores of different sizes.
func openFootprints(r *run) error {
	var stores []*blockStore
	for _, n := range []int{r.size.small, r.size.middle, r.size.large} {
		b, err := r.blockStore(n)
		if err != nil {
			return err
		}
		stores = append(stores, b)
	}
	return r.storeFootprints("1e6", 1_000_000, stores...)
}

// The names of the figures of what a large restore takes.
const (
	restoreOwn    = "restore_1gib_private"
	restoreMapped = "restore_1gib_mapped"
)

// restoreMemory is what a process takes more after a large restore than before it opened the store, and after each level of pressure.
func restoreMemory(r *run) (err error) {
	if _, err := residentSet(); err != nil {
		r.skip(restoreOwn, "%v", err)
		r.skip(restoreMapped, "%v", err)
		return nil
	}
	s, err := r.storePrompt("memory", descriptor(r.size.layers, kv.F16), r.size.gibBlocks, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	err = s.model.SetRef(ctx, "pinned", s.prompt, db.RefOptions{Pinned: true}) // so that no level takes it away
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	bytes := s.source.bytes()
	paths, err := segmentFiles(s.dir)
	if err != nil {
		return err
	}
	s.source = nil
	why := canCool(paths)
	if memory, err := memoryBacked(r.dir); memory || err != nil {
		why = errors.Join(err, errors.New("the folder is in memory"))
	}
	var warm, cold []child
	for range 3 {
		c := child{Do: childMemory, Dir: s.dir, Layers: r.size.layers, Blocks: r.size.gibBlocks}
		if why == nil {
			if err := cool(paths); err != nil {
				return err
			}
			x := c
			if err := x.run(); err != nil {
				return err
			}
			cold = append(cold, x)
		}
		if err := warmed(paths); err != nil {
			return err
		}
		if err := c.run(); err != nil {
			return err
		}
		warm = append(warm, c)
	}
	kinds := []struct {
		name, what string
		of         func(f footprint) float64 // MiB
	}{
		{restoreOwn, "memory of its own (RssAnon), at most while it restores", func(f footprint) float64 { return f.Resident.Own }},
		{restoreMapped, "resident pages of mapped files, when it has restored", func(f footprint) float64 { return f.Resident.Files }},
	}
	for k, kind := range kinds {
		at := func(all []child, i int) (values []float64) {
			for _, c := range all {
				values = append(values, max(0, kind.of(c.Footprints[i])-kind.of(c.Footprints[0])))
			}
			return values
		}
		first := memoryPeak + k // the peak, or what is there afterwards
		f := figure{name: kind.name, unit: "MiB", values: at(warm, first), reference: fmt.Sprintf("%s, beyond what it was before Open: a process that restores %d MiB of f16, "+
			"%d MiB stored, from the page cache, into rows that it has touched", kind.what, bytes>>20, storedMiB(paths))}
		for i, step := range memorySteps[memoryAfter:] {
			f.reference += fmt.Sprintf("; %s: %s", step, number(median(at(warm, memoryAfter+i))))
		}
		if why == nil {
			f.reference += fmt.Sprintf("; nothing in the page cache: %s, after the restore %s", number(median(at(cold, first))), number(median(at(cold, memoryAfter))))
		} else {
			f.reference += fmt.Sprintf("; not measured cold: %v", why)
		}
		f.reference += fmt.Sprintf("; heap in use after the restore %.2f MiB more than before Open", float64(warm[0].Footprints[memoryAfter].Heap-warm[0].Footprints[0].Heap)/(1<<20))
		r.emit(f)
	}
	return nil
}

// memorySteps are when the process that restores looks at itself.
var memorySteps = []string{"before Open", "peak", "after the restore", "after Pressure(Moderate)", "restored again and Pressure(Low)", "restored again and Pressure(Critical)"}

const (
	memoryPeak  = 1
	memoryAfter = 2
)

func storedMiB(paths []string) int64 {
	sizes, err := fileSizes(paths)
	if err != nil {
		return 0
	}
	return total(sizes) >> 20
}

// memory is that process.
func (c *child) memory() (err error) {
	desc := descriptor(c.Layers, kv.F16)
	n := c.Blocks * blockTokens
	prompt, dst := kv.Prompt{Tokens: tokens(1, n)}, newKVCache(desc, n)
	before, err := taken(nil)
	if err != nil {
		return err
	}
	c.Footprints = append(c.Footprints, before)
	s, err := openStore(c.Dir, desc, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	restore := func() error { _, err := s.restore(prompt, dst.rows(n)); return err }
	peak, err := peakResidence(restore)
	if err != nil {
		return err
	}
	c.Footprints = append(c.Footprints, footprint{Resident: peak})
	look := func() error {
		f, err := taken(s)
		c.Footprints = append(c.Footprints, f)
		return err
	}
	if err := look(); err != nil {
		return err
	}
	for i, level := range []db.Pressure{db.Moderate, db.Low, db.Critical} {
		if i > 0 {
			if err := restore(); err != nil {
				return err
			}
		}
		if _, err := s.Pressure(ctx, level); err != nil {
			return err
		}
		if err := look(); err != nil {
			return err
		}
	}
	return nil
}

// peakResidence is the most that the process has in memory while fn runs, looked at each millisecond.
func peakResidence(fn func() error) (peak residence, err error) {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	for {
		now, rerr := residentSet()
		if rerr != nil {
			return peak, errors.Join(rerr, <-done)
		}
		peak.Own, peak.Files = max(peak.Own, now.Own), max(peak.Files, now.Files)
		select {
		case err := <-done:
			return peak, err
		case <-time.After(time.Millisecond):
		}
	}
}
