//go:build !linux

package direct

import (
	"unsafe"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// newMemory makes RingBytes that begin where a page does.
func newMemory() ([]byte, error) {
	b := make([]byte, RingBytes+vfs.DirectAlign)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (vfs.DirectAlign - 1)
	return b[skip : skip+RingBytes], nil
}

func freeMemory([]byte) {} // the garbage collector has it
