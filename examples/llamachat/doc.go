// Llamachat tells the story of examples/warmstart on the real thing: stock llama.cpp, a real model, real text.
//
//	bash tests/llama/fetch.sh && . .cache/llama/env.sh
//	go run ./examples/llamachat -store /tmp/chat
//
// It starts itself three times: once as a process without a store that is never killed, for comparison; once to restore what
// the store has of the prompt, read the rest and save its KV cache, and that process is killed with SIGKILL right after Save;
// and once to open the store, restore, and write on. Loading the model is in neither time to first token.
//
// The store stays: run it again, with the same prompt or one that begins like it, and the first process reuses it, too. Beside it lies
// /tmp/chat.memo, which remembers the hashes of the model file. If nothing was stored, nothing stays. How far the work is goes to standard error, but not with -json.
//
// With -tokens it prints the prompt's token ids and does no more, for kvdump:
//
//	go run ./examples/llamachat -tokens >prompt.json
//	go run ./tools/kvdump explain /tmp/chat --tokens-file prompt.json
//
// With -chat it holds a conversation instead, in the model's own chat template, on packages chat and runtimes/llamacpp:
//
//	go run ./examples/llamachat -chat -store /tmp/chat -model "$DORMOUSE_LLAMA_SMOL" -system "You are a helpful assistant."
//
// Answers are shown as they come. Ctrl-C ends one, and what there is of it is kept; at the prompt it leaves. /help lists the commands. With the
// same -store and -id the conversation goes on where it was, also after the process was killed. Where standard input is no terminal, or with
// -script FILE, each line is a message or a command, and is printed with what comes of it; a line that cannot be done makes the exit code 1.
// docs/llamacpp.md (Chat) says more.
//
// Exit codes: 0 all is as it must be; 1 something is not, or failed; 2 the call was wrong.
package main
