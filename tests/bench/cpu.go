package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// The names of the figures of processor time.
const (
	cpuRestore = "cpu_ms_per_mib_restore"
	cpuPut     = "cpu_ms_per_mib_put"
)

// cpuLap is a lap whose time is not what a clock says, but what all processors worked for this process meanwhile: its own code, and the
// system's for it. Writing back to the disk is later, and nobody's.
func cpuLap(fn func() error) lap {
	return func() (time.Duration, error) {
		before, err := processorTime()
		if err != nil {
			return 0, err
		}
		if err := fn(); err != nil {
			return 0, err
		}
		after, err := processorTime()
		return after - before, err
	}
}

// cpuTimes are the processor times of restores and puts, beside files of f16 and what llama.cpp does itself.
func cpuTimes(r *run) (err error) {
	if _, err := processorTime(); err != nil {
		r.skip(cpuRestore, "%v", err)
		r.skip(cpuPut, "%v", err)
		return nil
	}
	s, err := r.storePrompt("cpu", descriptor(r.size.layers, kv.F16), r.size.blocks, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.discard()) }()
	dst := newKVCache(s.desc, s.source.tokens)
	files, err := r.folder("files")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(files)) }()
	names := []string{"a restore", "reading a file a block", "copy, memory to memory", "a put", "writing a file a block"}
	laps := []lap{
		cpuLap(func() error { _, err := s.restore(s.prompt, dst.rows(dst.tokens)); return err }),
		cpuLap(func() error { return getFiles(files, dst, r.size.blocks) }),
		cpuLap(func() error { copyAll(dst, s.source, processors(), copyBytes); return nil }),
		func() (took time.Duration, err error) {
			return r.freshStore("cpu-put", s.desc, func(to *opened) (time.Duration, error) {
				return cpuLap(func() error { _, err := to.put(s.prompt, s.source.rows(s.source.tokens)); return err })()
			})
		},
		func() (took time.Duration, err error) {
			if err := emptied(files); err != nil {
				return 0, err
			}
			return cpuLap(func() error { return putFiles(files, s.source, r.size.blocks, false) })()
		},
	}
	if err := putFiles(files, s.source, r.size.blocks, false); err != nil {
		return err
	}
	theirs, end, why := r.llamaLaps()
	if end != nil {
		defer end()
	}
	for _, l := range theirs {
		names, laps = append(names, l.name), append(laps, l.lap)
	}
	times, err := interleave(r.size.rounds, laps...)
	if err != nil {
		return err
	}
	if _, err := s.restore(s.prompt, dst.rows(dst.tokens)); err != nil {
		return err
	}
	if err := dst.compare(s.source); err != nil {
		return err
	}
	perMiB := make([][]float64, len(times)) // milliseconds
	for i := range times {
		bytes := dst.bytes()
		if k := i - (len(times) - len(theirs)); k >= 0 {
			bytes = theirs[k].bytes
		}
		perMiB[i] = scaled(1e3/(float64(bytes)/(1<<20)), times[i])
	}
	text := func(at ...int) (all string) {
		for _, i := range at {
			all += fmt.Sprintf("; %s: %s", names[i], number(median(perMiB[i])))
		}
		return all
	}
	const llamaFirst = 5
	var loads, saves []int
	for i, l := range theirs {
		if l.saves {
			saves = append(saves, llamaFirst+i)
		} else {
			loads = append(loads, llamaFirst+i)
		}
	}
	if why != "" {
		why = "; SKIPPED llama.cpp's own: " + why
	}
	unit := "ms/MiB"
	r.emit(figure{name: cpuRestore, unit: unit, values: perMiB[0], ratios: quotients(times[0], times[1]),
		reference: fmt.Sprintf("user and system time of the process (getrusage) for a MiB of f16 that a verified restore from the page cache gives, %d MiB, %d goroutines; "+
			"beside reading them from a file of f16 a block%s%s%s", dst.bytes()>>20, processors(), text(1, 2), text(loads...), why)})
	r.emit(figure{name: cpuPut, unit: unit, values: perMiB[3], ratios: quotients(times[3], times[4]),
		reference: fmt.Sprintf("the same for a put, not synced; beside writing them to a file of f16 a block (temporary name, rename, not synced)%s%s%s", text(4, 2), text(saves...), why)})
	return nil
}

// llamaLap is something that llama.cpp does, or an adapter with it, and of how many bytes of f16.
type llamaLap struct {
	name  string
	saves bool // else it loads
	bytes int64
	lap   lap
}

// getFiles reads what putFiles stored.
func getFiles(dir string, dst *kvCache, blocks int) error {
	size := blockTokens * dst.rowBytes()
	return parallel(processors(), blocks, func(i int) (err error) {
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("%08x", i)))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		for t, mem := range dst.tensors {
			if _, err := f.ReadAt(mem[i*size:(i+1)*size], int64(t*size)); err != nil {
				return err
			}
		}
		return nil
	})
}

// emptied removes the files of a folder.
func emptied(dir string) error {
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range all {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
