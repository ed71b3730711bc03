// Package recovery finds out what a store is, from its files: [Run] reads index.db, the log and what segments a killed process left, and
// returns that as a value, a [Result]. The engine is built from it. Where index.db is lost or in doubt, it is built anew from segments and log.
//
// The log is replayed as if no power cut had taken anything; what one took is undone at the end (lost.go). Run changes no byte of segments or
// log. It writes index.db only where that is built anew. What is to be destroyed is listed, and left to the engine.
//
// replay.go applies frames, lost.go takes out what a power cut took, rebuild.go makes a new index, sweep.go looks at segments that were being
// written. [Beside] is for a reader beside a writer: the index, and of the log what it removes.
package recovery
