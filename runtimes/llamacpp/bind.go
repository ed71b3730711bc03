//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llamacpp

import (
	"fmt"
	"reflect"
	"runtime"

	"github.com/ebitengine/purego"
)

// Bind finds the functions of an opened libllama, wherever it came from. lookup returns the address of a C function:
// purego.Dlsym with the library's handle, or with purego.RTLD_DEFAULT if the program is linked to llama.cpp.
func Bind(lookup func(name string) (uintptr, error)) (*Library, error) {
	switch runtime.GOARCH {
	case "amd64", "arm64":
	default:
		return nil, fmt.Errorf("%w: llama.cpp is not called from Go on %s", ErrRefused, runtime.GOARCH)
	}
	if lookup == nil {
		return nil, fmt.Errorf("%w: no lookup", ErrRefused)
	}
	l := &Library{}
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		name, optional := symbol(v.Type().Field(i))
		address, err := lookup(name)
		if err != nil || address == 0 {
			if optional {
				continue
			}
			return nil, fmt.Errorf("%w: the library has no %s: %v", ErrRefused, name, err)
		}
		purego.RegisterFunc(v.Field(i).Addr().Interface(), address)
	}
	return l, nil
}
