//go:build unix

package vfs

import "syscall"

// PassingErrors are what a system says of a file that can be read at another time. A phone answers EPERM while it is locked; EACCES
// is for files that are another user's, or have the wrong mode: they stay so, and a put replaces what is in them.
var PassingErrors = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR, syscall.EPERM,
}
