//go:build !((linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows)

package llamacpp

import (
	"fmt"
	"runtime"
)

// Bind is not to be had on this system without cgo: fill in a [Library] instead.
func Bind(lookup func(name string) (uintptr, error)) (*Library, error) {
	return nil, fmt.Errorf("%w: functions cannot be called by address on %s without cgo", ErrRefused, runtime.GOOS)
}
