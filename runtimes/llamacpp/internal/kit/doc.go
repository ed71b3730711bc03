// Package kit is what the tests of the adapter share: those that run on a context in Go, and those that run on llama.cpp.
package kit
