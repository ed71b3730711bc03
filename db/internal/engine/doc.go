// Package engine will own a store that is open: commits, checkpoints, eviction, compaction, and what is destroyed when. Its tests judge
// that through the store.
package engine
