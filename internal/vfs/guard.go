package vfs

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// ErrFault is wrapped by what [Guard] returns when f touched a page that has no file behind it.
var ErrFault = errors.New("read fault: the file was truncated or cannot be read")

// Fault is what [Guard] returns. It wraps [ErrFault].
type Fault struct{ Addr uintptr }

func (f *Fault) Error() string { return fmt.Sprintf("%v (address %#x)", ErrFault, f.Addr) }
func (f *Fault) Unwrap() error { return ErrFault }

// Within reports whether f touched b.
func (f *Fault) Within(b []byte) bool {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return f.Addr >= from && f.Addr-from < uintptr(len(b))
}

// Guard runs f and turns a memory fault in it (a map whose file was truncated, an unreadable sector) into a [Fault].
// Other panics go on. It protects only this goroutine: whatever f starts needs its own Guard.
func Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = faultOf(r)
		}
	}()
	return f()
}

// faultOf returns the error for a recovered fault, and panics anew with anything else.
func faultOf(r any) error {
	// A fault is a runtime.Error that knows its address; a nil dereference or an index out of range is a bug of ours.
	if e, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		return &Fault{e.Addr()}
	}
	panic(r)
}
