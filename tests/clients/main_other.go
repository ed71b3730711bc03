//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "clients: it kills processes by signal, which this system does not have")
	os.Exit(1)
}
