//go:build !unix

package llamaserver

import "os"

// alive reports whether a process may still run.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	p.Release()
	return true
}
