//go:build unix

package llamaserver

import (
	"errors"
	"syscall"
)

// alive reports whether a process may still run.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
