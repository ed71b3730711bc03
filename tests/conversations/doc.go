// Conversations holds package chat against real models of llama.cpp. Each subcommand prints what it measured and ends with 1 if a law does not hold:
//
//	law      random operations on a trained model in f32: each token attends to what a list of who sees whom says, to 1e-9 nats
//	endless  500 turns in a store of 160 MiB: nothing fails and nothing grows; without rewrites it does
//	delete   two conversations over one system prompt, one of which is deleted: nothing of it is in any file
//	needle   a fact, much talk after it, and what the answer is worth with either of them hidden, after a kill and after a rewrite
//	kill     conversations whose process is killed at random moments, 200 times
//	topics   what embedders are worth to chat.Topic, on labelled pairs of messages of which half were held out
//	figures  switching, loading, views, branches, drafts, swaps
//
// It needs what tests/llama/fetch.sh fetches.
package main
