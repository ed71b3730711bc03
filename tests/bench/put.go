package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// freshStore runs fn with a new, empty store, which is closed and removed afterwards.
func (r *run) freshStore(name string, desc kv.Descriptor, fn func(s *opened) (time.Duration, error)) (took time.Duration, err error) {
	dir, err := r.folder(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), syncDir(r.dir)) }()
	s, err := openStore(dir, desc, options())
	if err != nil {
		return 0, err
	}
	took, err = fn(s)
	return took, errors.Join(err, s.Close())
}

// putProcess is a put that survives the process: quantized, with checksums, written, not synced.
func putProcess(r *run) error {
	desc := descriptor(r.size.layers, kv.F16)
	src := newKVCache(desc, r.size.putBlocks*blockTokens).fill()
	dst := newKVCache(desc, src.tokens)
	prompt := kv.Prompt{Tokens: tokens(1, src.tokens)}
	one := func() (time.Duration, error) {
		return r.freshStore("put", desc, func(s *opened) (time.Duration, error) {
			return since(func() error { _, err := s.put(prompt, src.rows(src.tokens)); return err })
		})
	}
	// Several callers, each with a prompt of its own: as many bytes in all.
	workers := processors()
	share := r.size.putBlocks / workers * blockTokens
	many := func() (time.Duration, error) {
		return r.freshStore("put", desc, func(s *opened) (time.Duration, error) {
			prompts := make([]kv.Prompt, workers)
			for i := range prompts {
				prompts[i].Tokens = tokens(10+i, share)
			}
			return since(func() error {
				return parallel(workers, workers, func(i int) error {
					_, err := s.put(prompts[i], src.rowsAt(i*share, 0, share))
					return err
				})
			})
		})
	}
	laps, err := interleave(r.size.rounds, one, copyLap(dst, src, workers, copyBytes), copyLap(dst, src, 1, copyBytes), many)
	if err != nil {
		return err
	}
	ours, copied, copiedAlone := rates(src.bytes(), laps[0]), rates(src.bytes(), laps[1]), rates(src.bytes(), laps[2])
	several := rates(src.bytes()/int64(r.size.putBlocks)*int64(workers*share/blockTokens), laps[3])
	r.emit(figure{
		name: "put", unit: "MB/s", values: ours, ratios: quotients(ours, copied), bar: atLeast(0.5),
		reference: fmt.Sprintf("Process mode: %d MiB of f16 in one Put into an empty store, quantized, with checksums, written, not synced; beside Go's copy of the same bytes, "+
			"%d goroutines: %s (1 goroutine: %s, of which the put has %.2fx); %d callers at a time put %.0f MB/s, %.2fx",
			src.bytes()>>20, workers, mbs(src.bytes(), laps[1]), mbs(src.bytes(), laps[2]), median(quotients(ours, copiedAlone)),
			workers, median(several), median(quotients(several, copied))),
	})
	return nil
}

// putSync is a put with one sync at the end, beside a file for each block.
func putSync(r *run) error {
	desc := descriptor(r.size.layers, kv.F16)
	src := newKVCache(desc, r.size.syncBlocks*blockTokens).fill()
	prompt := kv.Prompt{Tokens: tokens(1, src.tokens)}
	ours := func() (time.Duration, error) {
		return r.freshStore("put_sync", desc, func(s *opened) (time.Duration, error) {
			return since(func() error {
				if _, err := s.put(prompt, src.rows(src.tokens)); err != nil {
					return err
				}
				return s.Sync(ctx)
			})
		})
	}
	files := func() (took time.Duration, err error) {
		dir, err := r.folder("files")
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir), syncDir(r.dir)) }()
		return since(func() error { return putFiles(dir, src, r.size.syncBlocks, true) })
	}
	laps, err := interleave(min(r.size.rounds, 5), ours, files)
	if err != nil {
		return err
	}
	stored, reference := rates(src.bytes(), laps[0]), rates(src.bytes(), laps[1])
	r.emit(figure{
		name: "put_sync", unit: "MB/s", values: stored, ratios: quotients(stored, reference),
		reference: fmt.Sprintf("%d blocks, %d MiB of f16, in one Put and one Sync, Q8_0; beside a file of f16 a block (temporary name, fsync, rename; one sync of the folder), "+
			"%d goroutines: %s", r.size.syncBlocks, src.bytes()>>20, processors(), mbs(src.bytes(), laps[1])),
	})
	return nil
}
