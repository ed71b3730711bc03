// Package catalog has the small state of a store: its models, refs and notes, the records that wait to be destroyed (tombstones), and the
// blocks that were found damaged. The head of every log file repeats it, so that a lost index costs none of it.
//
// A [Catalog] changes by operations of the log ([Catalog.Apply]), live and in a replay alike. Whoever applies one has written its frame before,
// under the lock that orders frames. Only tombstones also change without a frame.
//
// It has one lock. A method holds it until it returns, and takes no other meanwhile. [Catalog.Hold] is the exception: under it the engine
// appends a frame and publishes the index. It knows neither index nor segments.
//
// Each kind of state has a struct without a lock (model.go, refset.go, noteset.go, pending.go, flags.go). catalog.go puts them together.
// change.go is what operations do to them, and the other files are what callers ask.
package catalog
