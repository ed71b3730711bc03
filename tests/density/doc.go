// Density measures what a compressor behind a codec would save, and what it would cost a restore, on the K and V rows of real
// models. It prints the rows of which docs/performance.md has the ranges.
//
//	bash tests/llama/fetch.sh && . .cache/llama/env.sh
//	go run ./tests/density
//
// A real text (Newton's Opticks) is evaluated and stored as it is. Each stored plane, the rows of one tensor in one block, is then
// encoded as its codec stores it, and compressed, in the order in which it is stored and with rows and channels transposed
// (channel-major). Restores of the two take turns, on one processor: checksum and decoding in one pass; checksum, decompressing, the order undone, and decoding.
// On Linux the times are processor time, so that other work on the machine disturbs them less.
package main
