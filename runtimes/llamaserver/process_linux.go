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

// terminate asks the server's whole group: a script that started it waits for it, and does not hand signals on.
func terminate(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

func kill(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
