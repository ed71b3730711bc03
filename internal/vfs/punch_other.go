//go:build !linux && !darwin && !windows

package vfs

import "os"

func punch(f *os.File, off, n int64) (bool, error) { return false, writeZeros(f, off, n) }
