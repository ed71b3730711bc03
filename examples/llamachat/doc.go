// Llamachat tells the story of examples/warmstart on the real thing: stock llama.cpp, a real model, real text.
//
//	bash tests/llama/fetch.sh && . .cache/llama/env.sh
//	go run ./examples/llamachat -store /tmp/chat
//
// It starts itself three times: once as a process without a store that is never killed, for comparison; once to restore what
// the store has of the prompt, read the rest and save its KV cache, and that process is killed with SIGKILL right after Save;
// and once to open the store, restore, and write on. Loading the model is in neither time to first token.
//
// The store stays: run it again, with the same prompt or one that begins like it, and the first process reuses it, too. With
// -tokens it prints the prompt's token ids and does no more, for "kvdump explain /tmp/chat --tokens-file -".
package main
