package vfs

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
)

const openFlags = 0

// SyncDir does nothing: NTFS logs directory changes itself.
func (osFS) SyncDir(string) error { return nil }

func (osFS) Space(dir string) (uint64, int, error) {
	free, _, err := space(dir)
	return free, int(blockOf(dir)), err
}

// VolumeBytes is the size of the file system that a directory is on.
func VolumeBytes(dir string) (uint64, error) {
	_, total, err := space(dir)
	return total, err
}

func space(dir string) (free, total uint64, err error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var unused uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, &total, &unused); err != nil {
		return 0, 0, &fs.PathError{Op: "free space of", Path: dir, Err: err}
	}
	return free, total, nil
}

func advise([]byte, int64, int64, bool) {}

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
