package boot

import "syscall"

// read asks the kernel, which an app on iOS may not be allowed to.
func read() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
