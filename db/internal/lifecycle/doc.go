// Package lifecycle counts the operations that are under way on a store, and gives the store to one owner at a time: Suspend, Resume, Close, a
// rebuild of the index. It knows nothing of what they do.
package lifecycle
