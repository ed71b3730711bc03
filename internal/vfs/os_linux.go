package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	return retry(f, unix.Fdatasync)
}

func allocate(f *os.File, off, n int64) error {
	err := retry(f, func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return grow(f, off+n)
	}
	return err
}

func punch(f *os.File, off, n int64) (bool, error) {
	err := retry(f, func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return false, writeZeros(f, off, n)
	}
	return err == nil, err
}

func grow(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() >= size {
		return err
	}
	return f.Truncate(size)
}
