package segments

import (
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Buffers for building records come in powers of two from 64 KiB to 64 MiB. Larger ones go to the garbage collector.
const (
	minClass = 16
	maxClass = 26
)

var pools [maxClass + 1]sync.Pool // of *[]byte

var pooledBytes atomic.Int64 // made for the pools since they were given back

// GiveBack returns what the pools hold to the operating system, if at least so many bytes were made for them. It runs the garbage
// collector: a pool is emptied by the second time.
func GiveBack(atLeast int64) {
	if n := pooledBytes.Load(); n >= atLeast && pooledBytes.CompareAndSwap(n, 0) {
		runtime.GC()
		debug.FreeOSMemory()
	}
}

// getBuffer returns n or more bytes that begin on a 64-byte boundary, so that kernels may use aligned and non-temporal
// stores. The contents are left over from whoever had them before.
func getBuffer(n int64) []byte {
	class := max(minClass, bits.Len64(uint64(n-1)))
	if class > maxClass {
		return alignedBytes(n)
	}
	if b, ok := pools[class].Get().(*[]byte); ok {
		return *b
	}
	pooledBytes.Add(1 << class)
	return alignedBytes(1 << class)
}

func putBuffer(b []byte) {
	class := bits.Len64(uint64(len(b) - 1))
	if class >= minClass && class <= maxClass && len(b) == 1<<class {
		pools[class].Put(&b)
	}
}

func alignedBytes(n int64) []byte {
	b := make([]byte, n+planeAlignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (planeAlignment - 1)
	return b[skip : int64(skip)+n : int64(skip)+n]
}
