//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags keeps a link that was planted in the store from being followed.
const openFlags = unix.O_NOFOLLOW | unix.O_CLOEXEC

// HolesUnderMaps says whether a hole can be punched into a file that is mapped.
const HolesUnderMaps = true

func allocatedAt(_ string, info os.FileInfo) int64   { return allocated(info) }
func allocatedIn(_ *os.File, info os.FileInfo) int64 { return allocated(info) }

func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return info.Size()
}

func (osFS) SyncDir(dir string) error {
	f, err := openFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSynced, err)
	}
	defer f.Close()
	// Some file systems (FUSE, SMB) have no sync for directories, and say so.
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

func (osFS) Space(dir string) (uint64, int, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(st.Bavail) * uint64(st.Bsize), int(st.Bsize), nil
}

// VolumeBytes is the size of the file system that a directory is on.
func VolumeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(st.Blocks) * uint64(st.Bsize), nil
}

func advise(b []byte, off, n int64, need bool) {
	b = clamp(b, off, n)
	if len(b) == 0 {
		return
	}
	advice := unix.MADV_DONTNEED
	if need {
		advice = unix.MADV_WILLNEED
	}
	unix.Madvise(b, advice) // a hint: nothing to do when it is refused
}

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// retry calls call with f's descriptor until no signal interrupts it. The descriptor stays open meanwhile: one that was
// closed and given out again would have another file punched.
func retry(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	closed := conn.Control(func(fd uintptr) {
		for {
			if err = call(int(fd)); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if closed != nil {
		return os.ErrClosed
	}
	return err
}
