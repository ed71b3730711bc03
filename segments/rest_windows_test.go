package segments

import "golang.org/x/sys/windows"

var errNoMemory error = windows.ERROR_NOT_ENOUGH_MEMORY
