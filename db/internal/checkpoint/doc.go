// Package checkpoint makes a store's files agree with what was acknowledged: it moves frames from the log to the index, seals segments that an
// earlier process left, and destroys the bytes of what is dead.
package checkpoint
