// Package llamaserver is a reverse proxy before a stock llama-server that keeps what the server has computed in a store, and has the server read
// it back: after a restart, in another conversation, with another model in between.
//
// It owns
//
//   - [Arguments], what a server was asked to do, and [Process], which starts it, starts it again and ends it;
//   - [Front], the http.Handler: requests that compute a prompt are rendered, tokenized, looked up, and forwarded with the slot in which
//     their prefix lies; everything else, and whatever cannot be named exactly, passes as it is;
//   - the slots: which request gets which, what they hold, when they are saved;
//   - rules that change requests ([Options.Normalize]), and prefixes that have a name: pinned, or to be computed at idle ([Front.Pin], [Front.Warm]).
//
// It promises that a request is answered as the server alone would answer it, with or without a store: what fails here costs
// time, never an answer. A prefix is restored only into a slot that the front has leased. What is stored are the rows and tokens that the
// server's own slot file has, under a fingerprint of the weights' bytes, the server's build and the arguments that change rows.
//
// The rule that everything else follows from: a llama-server whose slots share one cache empties all idle slots when a request begins in
// another (--cache-idle-slots). So what only an idle slot has is saved before anything begins, and nothing begins between a restore and the
// request that it is for. slots.Turn stands for both.
//
// An identity holds as long as the files that were hashed are the files that the server has (internal/weights): a server that sleeps loads them
// again, and files are replaced while it runs. So they are compared before a prompt is looked up, after each restore, before its request is sent, and
// before and after each save. A restore before a sleep does no harm: the server loses it with its slots. In doubt requests pass.
//
// A request that goes on where its slot's last one ended is sent before its tokens are known (ahead.go). With [Options.ScopeByKey] nothing begins in a slot
// that holds what another key has computed (apart.go).
//
// It must not know about commands, pages or metrics; obs/figures counts for it.
package llamaserver
