//go:build unix

package modelfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func stampOf(path string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return Stamp{
		Path: path, File: fmt.Sprintf("%d:%d", st.Dev, st.Ino),
		Written: fmt.Sprintf("%d:%d", st.Size, st.Mtim.Nano()), Changed: fmt.Sprint(st.Ctim.Nano()),
	}, nil
}

// linkID changes when a link does: one cannot be changed, only made anew.
func linkID(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d:%d", st.Dev, st.Ino, st.Ctim.Nano())
}
