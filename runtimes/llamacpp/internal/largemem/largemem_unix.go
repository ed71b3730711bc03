//go:build unix

package largemem

import "golang.org/x/sys/unix"

func take(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, n)
	}
	huge(b)
	return b
}

func give(b []byte) {
	_ = unix.Munmap(b) // memory that was made in another way is not known to it, and stays the collector's
}
