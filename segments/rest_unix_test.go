//go:build unix

package segments

import "syscall"

var errNoMemory error = syscall.ENOMEM
