// Package command is how the example programs read their flags and end: with exit code 0 if all is well, 1 if something failed or is not
// as the program says, and 2 if the call was wrong. ("go run" makes 1 of every failure: build the program for scripts.)
package command
