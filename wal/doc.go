// Package wal is the write-ahead log: numbered frames in numbered files, appended in order, made durable together, and
// read back after a crash.
//
// It owns the files of one folder: N.wal, and one spare that is reserved ahead under a temporary name. [Create] starts a
// file, [Log.Append] writes a frame, [Log.Sync] makes frames durable with one fsync for all who wait, [Log.Rotate] goes on
// in the next file behind a snapshot of the caller's small state, [Log.Remove] drops old files, [Replay] hands everything
// back.
//
// It promises
//
//   - that an appended frame survives the process, and a synced one survives a power cut;
//   - that log sequence numbers (LSNs) are consecutive, in file order, and never handed back out of order;
//   - that Replay never hands over a frame that was not written as it is, at that place, by this store;
//   - that an end torn by a crash is told from damage to what had been durable, and that reading goes on behind damage;
//   - that a recovered file is left as it is, unless a full disk has no room for another; then the log goes on behind its end;
//   - that a failed fsync is never retried;
//   - that logging goes on for a while on a full disk, in space reserved before, after a crash too.
//
// A [Log] is safe for concurrent use. Its locks, in order: the turn to fsync, mu, filesMu.
//
// It must not know what the payloads mean. Only format.go knows the bytes; docs/format/wal.md describes them.
package wal
