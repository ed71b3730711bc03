// Package engine is an open store: it writes the log and publishes to the index, makes checkpoints, destroys what is dead, evicts, keeps the
// budget and runs the background worker. What Suspend lets go of, and Resume builds anew, is one [Engine].
//
// [Open] builds it from what package recovery found. Operations come from package db, which lets them in and knows who has the store open;
// no callback of a caller's runs under a lock of this package.
//
// Locks, from the first to the last (docs/design.md has all of them, and a build tag checks the order):
//
//	ckptMu   one checkpoint, reclaim or rewrite of index.db at a time
//	publishGate shared from a record's append to its publishing; whole while a checkpoint notes the segments' ends
//	logMu    appending to the log and publishing to the index, so that both have one order
package engine
