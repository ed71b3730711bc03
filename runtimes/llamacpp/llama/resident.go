//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrSecond is returned when the process has a llama.cpp already, and it is not the one that is to be loaded. The message names
// it.
var ErrSecond = errors.New("llama: the process has another llama.cpp already")

// onlyOne refuses libraries beside others of the same names, and beside a llama.cpp that is part of something else.
func onlyOne(paths []string) error {
	files, err := resident()
	if err != nil {
		return fmt.Errorf("llama: look at what the process has loaded: %w", err)
	}
	ours := false
	for _, file := range files {
		if slices.ContainsFunc(paths, func(path string) bool { return sameFile(file, path) }) {
			ours = true
			continue
		}
		for _, stem := range stems {
			if isLibrary(filepath.Base(file), stem) {
				return fmt.Errorf("%w: %s is loaded, so %s is not: a process has room for one, use that or start another process", ErrSecond, file, paths[len(paths)-1])
			}
		}
	}
	if !ours && visible("llama_backend_init") {
		return fmt.Errorf("%w: llama_backend_init is there before %s is loaded: the program, or a library of it, has llama.cpp built in", ErrSecond, paths[len(paths)-1])
	}
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false // replaced since it was loaded
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
