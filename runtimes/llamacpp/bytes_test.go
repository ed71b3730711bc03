package llamacpp_test

import "unsafe"

// bytesAt is the memory that was passed to a C function.
func bytesAt(p *byte, n uintptr) []byte { return unsafe.Slice(p, n) }
