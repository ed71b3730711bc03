// Package proc finds out what the operating system shows of the process that listens at an address: which files it has mapped, with which arguments it
// was started and when, which user runs it, and what keeps it from seeing our files.
//
// Only Linux tells. Elsewhere, and of another user's processes, the answers are empty: callers must not take that for a no.
package proc
