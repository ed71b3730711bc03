package vfs

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Idly runs fn on a thread whose reads wait for all others, as far as the disk's scheduler knows priorities. fn must not start goroutines
// that are to have it, too.
func Idly(fn func()) {
	const (
		thisThread = 1 // IOPRIO_WHO_PROCESS, and 0 for the caller
		idle       = 3 << 13
	)
	runtime.LockOSThread() // it is not unlocked: the thread ends with its goroutine
	unix.Syscall(unix.SYS_IOPRIO_SET, thisThread, 0, idle)
	fn()
}
