// Package real has the tests that run stock llama.cpp, with random models of every architecture and with real ones: tests/llama/fetch.sh gets
// both and says which variables to set. Without them these tests skip. Those of the package above run everywhere, on a context in Go.
//
// It owns the proof that what is restored gives the logits of what was evaluated, that a context or a sequence that is not what it
// was is refused, and how much memory and what error a restore has. It must not reach into the adapter: only what users can call.
package real
