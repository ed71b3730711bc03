// Conversation shows the dual-stream system on a small transformer in plain Go, with nothing else installed: facts that stay, turns that are
// hidden, evicted and edited, branches of which one is kept, facts that are merged and a log that is rewritten, and two kills by SIGKILL, one
// of them in the middle of a turn.
//
// A second process holds the conversation, and is killed. This one computes everything again by itself, from a list of who sees whom, and
// compares: the words, and the scores of all words after each message, to the last bit. It prints a table, and a picture of what each turn saw.
// The exit code is 1 if anything is not as the list says.
//
//	go run ./examples/conversation
//
// With -json the last line is one JSON object. The transformer has random weights: what it says has no sense, its work is real.
package main
