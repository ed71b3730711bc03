// Package oplog has the operations of a store's log, and their bytes: the payloads of the frames that package wal writes.
//
// Each operation is a struct of fields that stand for themselves: what is renamed elsewhere changes no byte here. [Encode] and [Decode]
// are the only ways in and out. docs/format/oplog.md draws the bytes, testdata/payloads.golden pins them.
//
// Decode trusts nothing: each length is compared with the bytes that are left before anything is allocated, and a value that this release
// has no meaning for is refused with vfs.ErrVersion. No operation holds a token: the log is plain text.
//
// A new operation needs: its struct and kind (ops.go, format.go), a page and a line of golden bytes; Catalog.Apply; in recovery frame, numbers
// and, if it names places of records, Log.Names; expectFrame and readable in repair; and a word in Engine.appendFrame if it makes room on a full disk.
package oplog
