// Package recovery finds out what a store is, from its files: [Run] reads index.db, the log and what segments a killed process left, and
// returns that as a value, a [Result]. The engine is built from it. Where index.db is lost or in doubt, it is built anew from segments and log.
//
// Run changes no byte of segments or log. It writes index.db only where that is built anew. What is to be destroyed is listed, and left to
// the engine. [Beside] is for a reader beside a writer: it reads the index, and of the log what that removes.
//
// run.go has the steps in their order. open.go opens the index, rebuild.go enters what the segments hold, replay.go applies the frames, lost.go
// takes out what a power cut took (undo.go), damaged.go decides where frames are lost, orphans.go looks at a new index, and sweep.go at segments that
// were being written. Below them stand whole.go and disk.go, which read records, and what a recovery knows on its way: arrivals.go, ranks.go,
// scan.go, log.go, state.go.
package recovery
