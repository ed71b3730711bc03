//go:build cgo

package main

/*
int dormouse_shim_to_poll(void);
*/
import "C"

import "os"

// Go's poller begins now: see shim.c.
func init() {
	if fd := C.dormouse_shim_to_poll(); fd >= 0 {
		os.NewFile(uintptr(fd), "poller").Close()
	}
}
