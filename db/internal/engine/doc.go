// Package engine is an open store: it writes the log and publishes to the index, makes checkpoints, destroys what is dead, evicts, keeps the
// budget and runs the background worker. What Suspend lets go of, and Resume builds anew, is one [Engine].
//
// [Open] builds it from what package recovery found. Operations come from package db, which lets them in and knows who has the store open;
// no callback of a caller's runs under a lock of this package.
//
// Where to look: commit.go (log, index and catalog together), barrier.go and checkpoint.go (what is durable when), space.go and reserve.go
// (the budget), evict.go (what goes next), reclaim.go and rewrite.go (bytes given back), put.go (what package write needs), delete.go,
// reader.go (read-only), counters.go (what db.Stats shows).
//
// docs/internals.md has its locks in their order; a build tag checks it.
package engine
