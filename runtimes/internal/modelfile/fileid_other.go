//go:build !unix

package modelfile

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// stampOf has the path, where there are no inodes, size and modification time. Who sets that time back is not seen here.
func stampOf(path string) (Stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Stamp{}, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Stamp{}, err
	}
	sum := sha256.Sum256([]byte(abs))
	return Stamp{Path: path, File: fmt.Sprintf("%x", sum[:16]), Written: fmt.Sprintf("%d:%d", st.Size(), st.ModTime().UnixNano())}, nil
}

func linkID(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.ModTime().UnixNano())
}
