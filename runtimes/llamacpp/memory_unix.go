//go:build unix

package llamacpp

import "golang.org/x/sys/unix"

// largeMemory returns n bytes that go back to the system as soon as they are freed: a whole state may be as large as all the
// rest of the program.
func largeMemory(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, n)
	}
	return b
}

// freeLarge ends what largeMemory returned.
func freeLarge(b []byte) {
	_ = unix.Munmap(b) // memory that was made in another way is not known to it, and stays the collector's
}
