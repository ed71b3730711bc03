// Package engine is an open store: it writes the log and publishes to the index, makes checkpoints, destroys what is dead, evicts, keeps the
// budget and runs the background worker. What Suspend lets go of, and Resume builds anew, is one [Engine].
//
// [Open] builds it from what package recovery found. Operations come from package db, which lets them in and knows who has the store open;
// no callback of a caller's runs under a lock of this package.
//
// docs/design.md has its locks in their order; a build tag checks it.
package engine
