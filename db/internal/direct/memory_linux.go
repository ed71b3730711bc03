package direct

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is the size of a huge page of most systems: into memory that is contiguous, some devices read twice as fast.
const hugeBytes = 2 << 20

// newMemory maps RingBytes that begin where a huge page does.
func newMemory() ([]byte, error) {
	const all = RingBytes + hugeBytes
	p, err := unix.MmapPtr(-1, 0, nil, all, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	skip := -uintptr(p) & (hugeBytes - 1)
	mem := unsafe.Slice((*byte)(unsafe.Add(p, skip)), RingBytes)
	if skip > 0 {
		unix.MunmapPtr(p, skip)
	}
	if rest := hugeBytes - skip; rest > 0 {
		unix.MunmapPtr(unsafe.Add(p, skip+RingBytes), rest)
	}
	unix.Madvise(mem, unix.MADV_HUGEPAGE) // where it is refused, the pages are small
	return mem, nil
}

func freeMemory(mem []byte) { unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))) }
