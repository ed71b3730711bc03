// Command capi is the store as a C library: dormouse.h says what it can do, capi/build.sh makes it. It is a package main because Go builds
// C libraries of those.
//
// It owns the wire between C and Go: handles, errors, structs and JSON; and the way from a host's llama.cpp context to runtimes/llamacpp (dormouse_llama.h).
// shim.c stands before every call: it keeps Go out of forked processes and holds each thread's last error. Nothing of the caller's is kept after a call, and nothing that the caller gives can crash Go but memory that is not
// there.
//
// It must not hold rules of its own about what a store or an adapter does: those are in db and in llamacpp.
package main

func main() {} // a library has none; Go wants it
