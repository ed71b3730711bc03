// Package examples holds programs that a newcomer copies from. With nothing but Go: warmstart, whose process is killed; scopes, a chat of
// several people over one system prompt; forget, which deletes one of them; tour, whose store docs/design.md looks
// into; conversation, the dual-stream system of package chat: facts, turns,
// branches, and two kills. llamachat needs a llama.cpp library and a model file; with -chat it is a chat in the terminal.
// llamahost is a program in C++ on stock llama.cpp and the C library.
// What they share is in talk (a model with a store) and command (flags, exit codes).
package examples
