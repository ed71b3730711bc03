// Package largemem is memory for whole states, which may be as large as all the rest of the program: what is freed goes back to the
// system at once, or, of one state of moderate size, as soon as the system wants it.
package largemem
