//go:build !unix

package llamacpp

func largeMemory(n int) []byte { return make([]byte, n) }

func freeLarge([]byte) {}
