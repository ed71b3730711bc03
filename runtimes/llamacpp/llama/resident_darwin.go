//go:build !ios || cgo

package llama

import "github.com/ebitengine/purego"

// resident lists the shared libraries of the process, by whomever they were loaded.
func resident() ([]string, error) {
	var count func() uint32
	var name func(uint32) string
	for fn, symbol := range map[any]string{&count: "_dyld_image_count", &name: "_dyld_get_image_name"} {
		at, err := purego.Dlsym(purego.RTLD_DEFAULT, symbol)
		if err != nil {
			return nil, err
		}
		purego.RegisterFunc(fn, at)
	}
	var files []string
	for i := range count() {
		files = append(files, name(i))
	}
	return files, nil
}
