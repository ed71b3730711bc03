package llamaserver

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFolder is where a folder of slot files lies best.
func memoryFolder() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() && unix.Access("/dev/shm", unix.W_OK) == nil {
		return "/dev/shm"
	}
	return ""
}

// makeSlotFile makes memory with a name: a link to the descriptor of a memfd. The server opens the link as it would a file.
func makeSlotFile(path string) (*os.File, error) {
	fd, err := unix.MemfdCreate("dormouse-slot", unix.MFD_CLOEXEC)
	if err != nil { // an old kernel, or one that forbids it
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	file := os.NewFile(uintptr(fd), path)
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), path); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
