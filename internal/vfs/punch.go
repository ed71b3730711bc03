package vfs

import (
	"errors"
	"os"
)

// errNoHoles is what a system's call for a hole says where the file system has none.
var errNoHoles = errors.New("no hole can be punched here")

// punchBlocks punches the whole blocks of [off, off+n) and writes zeros over the rest. It is for systems whose holes consist of whole blocks
// and end within the file. hole punches [from, to); where it says errNoHoles, all becomes zeros. freed is true only if no byte of the range
// still occupies the disk: whoever counts on the space then gets all of it.
func punchBlocks(f *os.File, off, n, block int64, hole func(from, to int64) error) (freed bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	end := min(off+n, info.Size())
	if off >= end {
		return true, nil
	}
	from, to := (off+block-1)/block*block, end/block*block
	if from < to {
		err = hole(from, to)
	}
	if from >= to || errors.Is(err, errNoHoles) {
		return false, writeZeros(f, off, end-off)
	}
	if err == nil {
		err = writeZeros(f, off, from-off)
	}
	if err == nil {
		err = writeZeros(f, to, end-to)
	}
	return err == nil && from == off && to == end, err
}

// writeZeros overwrites [off, off+n), where holes cannot be punched. Like a hole, it does not make the file longer.
func writeZeros(f *os.File, off, n int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	n = min(n, info.Size()-off)
	if n <= 0 {
		return nil
	}
	zeros := make([]byte, min(n, 1<<20))
	for n > 0 {
		k, err := f.WriteAt(zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off, n = off+int64(k), n-int64(k)
	}
	return nil
}
