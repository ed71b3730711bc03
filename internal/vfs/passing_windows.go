package vfs

import "golang.org/x/sys/windows"

// PassingErrors are what the system says of a file that can be read at another time: it has none of the names that other systems
// have. A virus scanner or a backup may have the file to itself for a while.
var PassingErrors = []error{
	windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY, windows.ERROR_COMMITMENT_LIMIT,
	windows.ERROR_COMMITMENT_MINIMUM, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_WORKING_SET_QUOTA, windows.ERROR_PAGEFILE_QUOTA,
	windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION,
}
