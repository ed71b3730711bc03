//go:build unix

package modelfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileID changes when the file does: device, inode, size, and the times of modification and of change. The second one nobody can set
// back.
func fileID(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%d:%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()), nil
}
