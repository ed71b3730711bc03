//go:build unix

package folder

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dormousekv/dormouse/internal/vfs"
)

func accessOf(info os.FileInfo) access {
	a := access{mode: info.Mode(), uid: os.Geteuid()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		a.uid = int(st.Uid)
	}
	return a
}

// filesIn calls do for the regular files of a directory that have a name which is asked for, until it returns an error. What cannot be
// looked at is left out: whoever needs it says why. A store has hundreds of segments, and Open waits: so each is asked for by its name
// in the directory alone.
func filesIn(dir string, named func(string) bool, do func(name string, a access) error) error {
	var f *os.File
	err := vfs.WithHandle(func() (err error) {
		f, err = os.Open(dir)
		return err
	})
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	fd := int(f.Fd())
	for _, name := range names {
		if !named(name) {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		for err == unix.EINTR {
			err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if err := do(name, access{fs.FileMode(st.Mode & 0o777), int(st.Uid)}); err != nil {
			return err
		}
	}
	return nil
}

// othersWrite says how users other than me, as whom this process runs, can write to a file or directory, an owner (root, too) among them;
// empty if they cannot.
func (a access) othersWrite(me int) string {
	if a.uid != me {
		return fmt.Sprintf("owned by uid %d, expected %d, as whom this process runs", a.uid, me)
	}
	if mode := a.mode.Perm(); mode&0o022 != 0 {
		return fmt.Sprintf("mode %s, expected %s: only the owner writes", mode, mode&^0o022)
	}
	return ""
}

// othersRead reports whether other users can read a file, or enter a directory.
func (a access) othersRead() bool {
	if a.mode.IsDir() {
		return a.mode.Perm()&0o011 != 0
	}
	return a.mode.Perm()&0o044 != 0
}
