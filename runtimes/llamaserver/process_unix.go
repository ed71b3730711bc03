//go:build unix && !linux

package llamaserver

import (
	"os"
	"syscall"
)

// diesWithUs: this system cannot end a process with another. A front that is killed leaves its server; the next one says so.
func diesWithUs(a *syscall.SysProcAttr) { a.Setpgid = true }

// terminate asks the server's whole group: a script that started it waits for it, and does not hand signals on.
func terminate(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

func kill(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
