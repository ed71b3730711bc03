// Command warmstart shows what Dormouse is for: it kills a program that has just read a long prompt, starts it again, and
// lets it go on where it was, without reading the prompt a second time.
//
//	go run ./examples/warmstart
//
// The files, in the order in which a newcomer wants them:
//
//	store.go   how a program opens a store, restores a prompt's KV cache from it and saves it: copy this one
//	child.go   a program that answers a prompt, with a store
//	main.go    what is run, one child process after the other
//	kill.go    starting and killing those processes
//	verdict.go what has to hold, and the table
//	report.go  the same as JSON
//
// The transformer, which knows nothing of the store, is internal/tiny.
// The model's weights are random, so the words it writes have no sense; what is computed, stored and compared is real.
// Exit codes: 0 all is as it has to be; 1 a continuation is not, or something failed; 2 the call was wrong.
//
// With -dir the stores stay, for kvdump: -print-tokens prints the ids of the prompt that they hold, for "kvdump explain".
package main
