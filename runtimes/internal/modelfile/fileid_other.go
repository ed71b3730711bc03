//go:build !unix

package modelfile

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// fileID changes when the file does: the path, where there are no inodes, size and modification time.
func fileID(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(abs))
	return fmt.Sprintf("%x:%d:%d", sum[:16], st.Size(), st.ModTime().UnixNano()), nil
}
