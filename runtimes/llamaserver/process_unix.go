//go:build unix && !linux

package llamaserver

import (
	"os"
	"syscall"
)

// diesWithUs: this system cannot end a process with another. A front that is killed leaves its server; the next one says so.
func diesWithUs(a *syscall.SysProcAttr) { a.Setpgid = true }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
