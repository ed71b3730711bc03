// Package index answers which blocks a store holds, where they lie, and what hangs below what. It is derived: everything in
// it can be rebuilt from the segments and the log, and on any doubt it is.
//
// It owns index.db (bbolt) and the Bloom filter's file, and keeps above index.db what was written since the last
// checkpoint, in memory:
//
//	View   one immutable version: active overlay, frozen overlay, bbolt snapshot; newest wins, tombstones hide
//	Update changes the active overlay; all of it or nothing
//	Freeze, Checkpoint   write the overlay to bbolt in one transaction
//
// It promises that a [View] never changes and never waits for writers, that a committed checkpoint is atomic, that the
// child which shares most with a prompt is a neighbour of one seek ([View.Neighbors]), and that whatever bytes are in
// index.db, a read returns what was written or an error that wraps [ErrDamaged]: never a panic, a hang or another entry.
//
// It must not know about segments, the log, tokens or policies: a location is a few numbers to it, a rank one number.
//
// From the top down: view.go, children.go and txn.go (queries, changes), layers.go (the merged order), treap.go (overlays), format.go
// (the bytes of rows); snapshot.go, tree.go and pages.go (reading bbolt's pages, every number checked); bolt.go (bbolt itself,
// contained), checkpoint.go, rewrite.go, verify.go; and bloom.go.
package index
