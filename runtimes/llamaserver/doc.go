// Package llamaserver is a reverse proxy before a stock llama-server that keeps what the server has computed in a store, and has the server read
// it back: after a restart, in another conversation, with another model in between.
//
// A request's way is in handle.go, from top to bottom: wait until the model is known (held.go), make its prompt (prompts.go), lease a slot
// (internal/slots), save what other slots would lose (saver.go), restore what is stored (restorer.go), send it (sent.go), and learn from the answer.
// A request that goes on where its slot's last one ended is sent before its tokens are known (ahead.go). What cannot be helped passes (pass.go).
//
// The rooms of a model that is served (served.go) each know one thing:
//
//   - guard.go: is the server still the one that was looked at, with the same files (internal/weights) and adapters?
//   - internal/slots: what does each slot hold, and who has it?
//   - reach.go, internal/slotfile: how does a slot get into a file, and back?
//   - saver.go, left.go: what has only a slot, and how does it get into the store?
//   - restorer.go, restore.go, plan.go: what is restored for a request, and does that pay (internal/trial)?
//   - prompts.go, keys.go: which tokens, adapters and scope has a request?
//   - apart.go: what may a request with one API key not find in a slot?
//   - parted.go, explain.go: where did a prompt part from the nearest one?
//   - prepare.go, recall.go, samerows.go, internal/layout: which model is it, and how do its slot files look?
//
// A front (front.go, models.go, run.go) has the models, the store (shelf.go), the figures (ledger.go), and what a user does with them: pins.go,
// warm.go, purge.go, status.go. [Arguments] are what a server was asked to do, [Process] starts it, starts it again and ends it.
//
// The package promises that a request is answered as the server alone would answer it, with or without a store: what fails here costs
// time, never an answer. A prefix is restored only into a slot that the front has leased. What is stored are the rows and tokens that the
// server's own slot file has, under a fingerprint of the weights' bytes, the server's build and the arguments that change rows.
//
// Everything else follows from one rule. A llama-server whose slots share one cache empties all idle slots when a request begins in
// another (--cache-idle-slots). So what only an idle slot has is saved before anything begins, and nothing begins between a restore and the
// request that it is for. [slots.Turn] stands for both.
//
// It must not know about commands, pages or metrics; obs/figures counts for it.
package llamaserver
