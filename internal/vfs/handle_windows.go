package vfs

import "golang.org/x/sys/windows"

var (
	handleErrors = []error{windows.ERROR_TOO_MANY_OPEN_FILES}
	noMemory     = windows.ERROR_NOT_ENOUGH_MEMORY
)

// handleLimit is not known: it is the system's memory.
func handleLimit() (n uint64, known bool) { return 0, false }
