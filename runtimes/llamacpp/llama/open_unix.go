//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo))

package llama

import "github.com/ebitengine/purego"

func open(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func symbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }

// visible reports whether any library of the process offers that symbol to all others.
func visible(name string) bool {
	at, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
	return err == nil && at != 0
}
