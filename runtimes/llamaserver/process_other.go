//go:build !unix

package llamaserver

import (
	"os"
	"syscall"
)

// diesWithUs: a front that is killed leaves its server.
func diesWithUs(*syscall.SysProcAttr) {}

func terminate(p *os.Process) error { return p.Kill() }

func kill(p *os.Process) error { return p.Kill() }
