package vfs

import "errors"

// Passing reports whether something failed for want of file handles, memory or leave to open the file: that says nothing about the
// bytes in it, nor for long.
func Passing(err error) bool {
	for _, want := range PassingErrors {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}
