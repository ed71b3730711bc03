package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

const openFlags = 0

func allocated(info os.FileInfo) int64 { return info.Size() }

// SyncDir does nothing: NTFS logs directory changes itself.
func (osFS) SyncDir(string) error { return nil }

func (osFS) Space(dir string) (uint64, int, error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var free, total, totalFree uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, &total, &totalFree); err != nil {
		return 0, 0, &fs.PathError{Op: "free space of", Path: dir, Err: err}
	}
	return free, 4096, nil
}

func advise([]byte, int64, int64, bool) {}

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
