// Turns is a chat of thirty turns with a real model, whose processes are killed with SIGKILL at random moments, in the middle of a turn
// too. What it says, and every logit, must be that of a process that was never killed and had no store.
//
//	bash tests/llama/fetch.sh && . .cache/llama/env.sh
//	go run ./tests/turns
//
// A process goes on where the last one got to: it attaches, restores, evaluates the question, writes an answer and saves, a few turns
// long. A turn that was not acknowledged is done again. Rows are lossless (raw), and Align has everything evaluated in the batches in
// which it would have been: a turn begins at the multiple of the batch before it, in the process that is never killed, too. Beside it stands
// how long the answers stay the same with INT8 rows.
package main
