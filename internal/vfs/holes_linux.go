package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NextData returns where the first byte at or behind off lies that occupies the disk, the file's size if there is none, and
// where the next hole begins. ok is false where holes need not be known: only a tmpfs fills those that are looked into.
func (f *osFile) NextData(off int64) (data, hole int64, ok bool) {
	err := retry(f.File, func(fd int) error {
		var st unix.Statfs_t
		if err := unix.Fstatfs(fd, &st); err != nil {
			return err
		}
		if st.Type != unix.TMPFS_MAGIC {
			return unix.EOPNOTSUPP
		}
		var err error
		if data, err = unix.Seek(fd, off, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			data, err = unix.Seek(fd, 0, unix.SEEK_END)
			hole = data
			return err
		}
		if err == nil {
			hole, err = unix.Seek(fd, data, unix.SEEK_HOLE)
		}
		return err
	})
	return data, hole, err == nil
}
