package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// What may be in memory of a store's segments where a restore counts as cold: this share, or some pages.
const (
	coldShare = 0.005
	coldBytes = 64 << 10
)

// restoreCold restores what is not in the page cache, beside what the device gives around it.
func restoreCold(r *run) (err error) {
	const name = "restore_cold"
	if memory, err := memoryBacked(r.dir); err != nil {
		r.skip(name, "%v", err)
		return nil
	} else if memory {
		r.skip(name, "%s is in memory, nothing there is ever cold: give -dir a folder on a disk", r.dir)
		return nil
	}
	desc := descriptor(r.size.layers, kv.F16)
	s, err := r.storePrompt(name, desc, r.size.blocks, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if err := s.Close(); err != nil {
		return err
	}
	paths, err := segmentFiles(s.dir)
	if err != nil {
		return err
	}
	if why := canCool(paths); why != nil {
		r.skip(name, "%v", why)
		return nil
	}
	sizes, err := fileSizes(paths)
	if err != nil {
		return err
	}
	dst := newKVCache(desc, s.source.tokens)
	var bytes int64           // that a restore read
	var before, after float64 // the largest, and the smallest, share of the segments in memory
	after = 1
	restore := func() (took time.Duration, err error) {
		if err := cool(paths); err != nil {
			return 0, err
		}
		if s.opened, err = openStore(s.dir, desc, options()); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		in, err := resident(paths, sizes)
		if err != nil {
			return 0, err
		}
		before = max(before, in)
		took, err = since(func() (err error) { bytes, err = s.restore(s.prompt, dst.rows(dst.tokens)); return err })
		if err != nil {
			return 0, err
		}
		in, err = resident(paths, sizes)
		after = min(after, in)
		return took, err
	}
	// Which depth the device likes best is measured before: the best of several that vary, taken from the rounds that count,
	// would be more than the device can do.
	var laps []lap
	var read int64
	for _, depth := range directDepths {
		laps = append(laps, func() (took time.Duration, err error) {
			took, read, err = readDirect(paths, sizes, depth)
			return took, err
		})
	}
	tried, err := interleave(max(1, r.size.rounds/3), laps...)
	if err != nil {
		return err
	}
	best, text := 0, ""
	for i, depth := range directDepths {
		if median(tried[i]) < median(tried[best]) {
			best = i
		}
		text += fmt.Sprintf(", %d: %s", depth, mbs(read, tried[i]))
	}
	times, err := interleave(r.size.rounds, restore, laps[best])
	if err != nil {
		return err
	}
	if err := dst.compare(s.source); err != nil {
		return err
	}
	if before > max(coldShare, coldBytes/float64(total(sizes))) {
		r.skip(name, "%.1f %% of the segments stayed in the page cache", 100*before)
		return nil
	}
	ours, device := rates(bytes, times[0]), rates(read, times[1])
	r.emit(figure{
		name: name, unit: "MB/s", values: ours, ratios: quotients(ours, device), bar: atLeast(0.9),
		reference: fmt.Sprintf("stored bytes; opened anew, then Match, Restore and Close; mincore: at most %.2f %% of the segments in memory before, at least %.0f %% after; "+
			"beside O_DIRECT reads of the same files in order, 1 MiB each into huge pages, %d in flight: %s (tried before: %s); caches below the kernel stay",
			100*before, 100*after, directDepths[best], mbs(read, times[1]), text[2:]),
	})
	return nil
}

func fileSizes(paths []string) (sizes []int64, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, info.Size())
	}
	return sizes, nil
}

func total(sizes []int64) (all int64) {
	for _, n := range sizes {
		all += n
	}
	return max(1, all)
}

// canCool tries on one file what restore_cold needs of the system.
func canCool(paths []string) error {
	for _, path := range paths[:min(1, len(paths))] {
		f, err := openDirect(path)
		if err != nil {
			return fmt.Errorf("O_DIRECT is refused: %w", err)
		}
		defer f.Close()
		b, err := directBuffer(0)
		if err != nil {
			return err
		}
		if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
			return fmt.Errorf("O_DIRECT reads fail: %w", err)
		}
	}
	return cool(paths)
}

// cool writes files back and drops their pages.
func cool(paths []string) error {
	return eachFile(paths, func(_ int, f *os.File) error { return dropCache(f) })
}

// resident is the share of files that is in the page cache.
func resident(paths []string, sizes []int64) (share float64, err error) {
	var in int64
	err = eachFile(paths, func(i int, f *os.File) error {
		n, err := residentBytes(f, sizes[i])
		in += n
		return err
	})
	return float64(in) / float64(total(sizes)), err
}

func eachFile(paths []string, fn func(i int, f *os.File) error) error {
	for i, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = errors.Join(fn(i, f), f.Close())
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
