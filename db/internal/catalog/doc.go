// Package catalog has the small state of a store: its models, refs and notes, the records that wait to be destroyed (tombstones), and the
// blocks that were found damaged. It is what the head of every log file repeats, so that a lost index costs none of it.
//
// A [Catalog] changes by operations of the log ([Catalog.Apply]), live and in a replay alike; who applies one has written its frame before,
// under the lock that orders frames. Only tombstones also change without a frame.
//
// It has one lock. A method holds it until it returns, and takes no other meanwhile. [Catalog.Hold] is the exception: under it the engine
// appends a frame and publishes the index. It knows neither index nor segments.
package catalog
