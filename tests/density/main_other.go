//go:build !((linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows)

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "density: on this system, shared libraries cannot be called without cgo")
	os.Exit(1)
}
