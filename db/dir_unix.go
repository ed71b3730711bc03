//go:build unix

package db

import (
	"fmt"
	"os"
	"syscall"
)

// othersWrite says how users other than the one that this process runs as can write to a file or directory, an owner (root, too)
// among them; empty if they cannot.
func othersWrite(info os.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("owned by uid %d, expected %d, as whom this process runs", st.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Sprintf("mode %s, expected %s: only the owner writes", mode, mode&^0o022)
	}
	return ""
}

// othersRead reports whether other users can read a file, or enter a directory.
func othersRead(info os.FileInfo) bool {
	if info.IsDir() {
		return info.Mode().Perm()&0o011 != 0
	}
	return info.Mode().Perm()&0o044 != 0
}
