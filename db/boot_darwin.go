package db

import "syscall"

// readBootID asks the kernel, which an app on iOS may not be allowed to.
func readBootID() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
