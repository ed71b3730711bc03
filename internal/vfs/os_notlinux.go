//go:build !linux

package vfs

import "os"

func datasync(f *os.File) error { return f.Sync() }

// allocate only grows the file: there is no reservation that every one of these systems has.
func allocate(f *os.File, off, n int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() >= off+n {
		return err
	}
	return f.Truncate(off + n)
}
