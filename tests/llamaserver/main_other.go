//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "llamaserver: this program kills and stops processes as Unix does")
	os.Exit(1)
}
