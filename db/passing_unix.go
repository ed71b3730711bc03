//go:build unix

package db

import "syscall"

// passingErrors are what a system says of a file that can be read at another time. A phone denies files while it is locked.
var passingErrors = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR, syscall.EACCES, syscall.EPERM,
}
