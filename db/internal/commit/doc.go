// Package commit changes what a store says: log, index and catalog, one change at a time, so that all three say the same.
//
// A change is read from top to bottom: [Ledger.Begin] takes the lock, the caller builds the index's next version, [Change.Log] appends the frame,
// [Change.Publish] shows the new version, [Change.Apply] has the catalog follow, [Change.End] lets the next one in.
package commit
