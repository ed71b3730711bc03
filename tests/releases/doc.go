// Releases runs releases of llama.cpp, each in a process of its own, and prints the table of docs/llamacpp.md.
//
//	bash tests/llama/fetch.sh && bash tests/llama/releases.sh && . .cache/llama/env.sh
//	go run ./tests/releases -model "$DORMOUSE_LLAMA_MODEL" -model "$DORMOUSE_LLAMA_SMOL" "$DORMOUSE_LLAMA_LIB" .cache/llama/lib-*
//
// Each release evaluates prompts on models of random weights, on stories260K, and on those that -model names, with caches of
// f16 and q8_0. It saves and restores its own states, and those of the first release of the command line, which then restores
// those of all others. Stores are lossless, so rows and logits are compared to the last bit.
//
// A folder may hold a loader of its own (ld-linux-*.so.2), for libraries of another system than this one, and a file "preload"
// that names a library to be loaded before; a file "origin" says where it is from. The program fails if a release that the
// loader knows does not do what the first one does.
package main
