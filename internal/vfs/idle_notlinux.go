//go:build !linux

package vfs

// Idly runs fn on a thread whose reads wait for all others, where the system has such priorities.
func Idly(fn func()) { fn() }
