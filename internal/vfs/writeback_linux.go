package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

func (f *osFile) WriteBack() error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := retry(f.File, func(fd int) error { return unix.SyncFileRange(fd, 0, 0, all) })
	for _, none := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.EINVAL, unix.ESPIPE, unix.EPERM} { // of a file system or a sandbox that has no such thing
		if errors.Is(err, none) {
			return nil
		}
	}
	return wrap("write back", f.Name(), err)
}
