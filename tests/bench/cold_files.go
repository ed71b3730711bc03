package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

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

// canCool tries on one file what cold restores need of the system.
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

// warmed reads files into the page cache.
func warmed(paths []string) error {
	return eachFile(paths, func(_ int, f *os.File) error { _, err := io.Copy(io.Discard, f); return err })
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
