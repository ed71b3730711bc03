//go:build unix

package vfs

import "syscall"

var (
	handleErrors = []error{syscall.EMFILE, syscall.ENFILE}
	noMemory     = syscall.ENOMEM
)

// handleLimit is how many files this process may have open.
func handleLimit() (n uint64, known bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
