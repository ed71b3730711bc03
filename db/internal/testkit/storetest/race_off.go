//go:build !race

package storetest

// Race reports whether the race detector is on: then pools forget at random, and allocations cannot be counted.
const Race = false
