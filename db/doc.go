// Package db is the store: an embedded database that keeps the KV cache of language-model prompts on disk, so that a
// prefix which is stored need not be computed again.
//
// It owns the public API ([Open], [Store], [Model], [Match]), the order in which segments, log and index are written,
// and everything that decides what is kept: budget, eviction, refs, deletion.
//
// It promises (docs/reliability.md has the whole list):
//
//   - a hit is never wrong: model, parent chain, token ids, spans, scope and checksum of every row are compared before the
//     row is handed out; what fails shortens the hit, and the [Reason] says why;
//   - what was acknowledged survives the process, what was deleted stays deleted;
//   - opening is O(1), the budget holds, and a damaged file is an error with file and offset, never a panic.
//
// An operation enters the store, has the engine (db/internal/engine) do it, and leaves. Suspend, Resume, Close and a rebuild of the index own the
// store meanwhile: operations wait, or are refused. The call that finds the index damaged fails with [ErrIndexDamaged], or is a miss; the next call
// waits for the rebuild. docs/internals.md has a map of the packages and the table of locks.
package db
