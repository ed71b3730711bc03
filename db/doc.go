// Package db is the store: an embedded database that keeps the KV cache of language-model prompts on disk, so that a
// prefix which was computed once is never computed again. It is the only package that knows all the others.
//
// It owns the public API ([Open], [Store], [Model], [Match]), the order in which segments, log and index are written,
// and everything that decides what is kept: budget, eviction, refs, deletion.
//
// It promises (docs/design.md has the whole list):
//
//   - a hit is never wrong: model, parent chain, token ids, spans, scope and checksum of every row are compared before the
//     row is handed out; what fails shortens the hit, and the [Reason] says why;
//   - what was acknowledged survives the process, what was deleted stays deleted;
//   - opening is O(1), the budget holds, and a damaged file is an error with file and offset, never a panic.
//
// # Locks, in the order in which they are taken
//
//	Store.life      entered by every operation; owned by Suspend, Resume, Close and a rebuild of the index
//	Match.mu        one method of a match at a time
//	engine.ckptMu   one checkpoint, reclaim or rewrite of index.db at a time
//	engine.gate     shared from a record's append to its publishing; whole while a checkpoint notes the segments' ends
//	lease.Shorts    shared by the store's own short leases; whole only to wait for their end
//	engine.logMu    appending to the log and publishing to the index, so that both have one order
//	catalog.mu      models, refs, notes, tombstones; changed under logMu or while opening, tombstones excepted
//	lease.Pins      pinned blocks, blocks about to be evicted
//	recency.mu      uses of blocks that the index does not have yet
//	usage.mu        what the files occupy, what is reserved
//
// docs/design.md has all locks in their order.
package db
