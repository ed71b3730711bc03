package llamaserver

import (
	"os"
	"syscall"
)

// diesWithUs has the kernel end the server when this process is killed.
func diesWithUs(a *syscall.SysProcAttr) {
	a.Pdeathsig = syscall.SIGKILL
	a.Setpgid = true // Ctrl-C is for the front, which saves the slots before it ends the server
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
