// Package oplog has the operations of a store's log, and their bytes: the payloads of the frames that package wal writes.
//
// Each operation is an [Op], in a file of its own. Its methods say all that the store must know about it: its bytes, what it does to the index
// and to the catalog, which numbers it gives, which places it names, and what it may use on a full disk. An operation that leaves one out does
// not compile. Index and catalog are interfaces here ([Index], [Catalog]), because the packages that implement them stand above this one.
//
// Fields stand for themselves: what is renamed elsewhere changes no byte here. [Encode] and [Decode] are the only ways in and out.
// docs/format/oplog.md draws the bytes, testdata/payloads.golden pins them.
//
// Decode trusts nothing: each length is compared with the bytes that are left before anything is allocated, and a value that this release
// has no meaning for is refused with vfs.ErrVersion. No operation holds a token: the log is plain text.
//
// A new operation needs a kind (op.go), a file, a line in the list of decode.go, a page, and a sample for the golden bytes (kit_test.go).
package oplog
