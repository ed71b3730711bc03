// Package largemem is memory for whole states, which may be as large as all the rest of the program: what is freed goes back to the
// system at once.
package largemem
