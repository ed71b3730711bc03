// Dormouse keeps the prompts of language models, before a stock llama-server: what was computed once is not computed again, after a restart,
// in another conversation, with another model in between.
//
//	dormouse serve -- llama-server -m model.gguf --port 8080
//	dormouse status
//	dormouse explain
//	dormouse purge --all
//	dormouse pin agent.json
//	dormouse warm agent.json
//	dormouse doctor -- llama-server -m model.gguf
//
// Exit codes: 0 all is well, 1 it failed, 2 it was called wrongly, 130 it was interrupted.
//
// It uses package llamaserver, the store, and nothing below. docs/llama-server.md is its manual.
package main
