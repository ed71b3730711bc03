//go:build !((linux && (!android || cgo)) || (darwin && (!ios || cgo)))

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "releases: this runs on Linux and macOS only")
	os.Exit(1)
}
