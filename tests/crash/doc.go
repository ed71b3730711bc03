// Command crash kills a working store again and again, and compares what is left with what was acknowledged.
//
//	go run ./tests/crash                       50 kills, under a minute
//	go run ./tests/crash -loops 2000 -json     one JSON object for machines; progress goes to standard error
//	go run ./tests/crash -seed 7 -only small   the same modes and scripts as last time, of those with a small budget
//	go run ./tests/crash -stead "qemu-aarch64 crash.arm64"   the store's processes are another build of this program
//
// A child (crew.go, worker.go) is this program, started anew. Four goroutines of it put, extend, match, restore, pin, delete, retire,
// compact, checkpoint, suspend and reopen a store of six models, and journal each beginning and each acknowledgement through a
// pipe (journal.go). It is ended at a random moment, mostly in the midst of work, sometimes while it opens the store. What is
// left is verified, opened, and compared by another process (check.go): in place, or a copy, so that the next child finds just
// what a killed one left; and a copy without index.db. The same store lives on through several children.
//
// What must be found, and what must not be, follows from the journal alone (demand.go): what was acknowledged and nothing took;
// no more than was put since a deletion; rows that are the function of their prompt that they were when they were put
// (chats.go, compare.go). Where the budget is small, eviction takes what it likes but for what is pinned: all the rest is demanded there,
// too. How a child is ended is a cutter's business (cut.go): SIGKILL, or a disk that loses power.
//
// It owns the journal, the demand and the report, and promises that a finding is printed with seed, mode and the journal's end,
// ends the run with status 1, and leaves the store where it is. Scripts and modes follow from the seed; what the goroutines and
// the kill do to each other does not.
//
// It must not use more of the database than its users can.
package main
