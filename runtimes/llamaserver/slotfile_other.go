//go:build !linux

package llamaserver

import "os"

// memoryFolder is where a folder of slot files lies best: the system's for temporary files.
func memoryFolder() string { return "" }

func makeSlotFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}
