//go:build unix

package llamacpp

import (
	"fmt"
	"os"
	"syscall"
)

// fileID changes when the file does: device, inode, size and modification time.
func fileID(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s: no inode", path)
	}
	return fmt.Sprintf("%d:%d:%d:%d", sys.Dev, sys.Ino, st.Size(), st.ModTime().UnixNano()), nil
}
