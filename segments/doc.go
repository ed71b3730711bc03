// Package segments keeps records, the stored rows of one block for one group, in append-only files of one model each.
//
// It owns the bytes of a segment file (docs/format/segment.md) and of a record (docs/format/record.md), and with them
// appending, mapping, leases, destroying, sealing, copying and verifying.
//
//   - A [Builder] lays out one record; [Set.Append] writes it with one pwrite and says where it lies: a [Loc].
//   - [Set.Read] hands out a [Record], a view into the map; no byte of a plane is copied.
//   - A [Lease] keeps alive what its holder can see. [Set.Destroy] queues, [Set.Reclaim] zeroes, punches and unlinks.
//   - [Set.Scan] finds the records of a file again without any index, [Set.Verify] looks at every byte.
//
// It promises that ids and offsets are never used twice, that a file which was there is appended to only where [Set.Resume] says so, that a record
// is handed out only if it names its own place and its header's checksum fits, and that damaged, truncated or vanished
// files end in an error, never in a panic. A full disk is [vfs.ErrNoSpace]; a failed fsync makes all later writes fail.
//
// A [Set] is made of files (all segments and what they share), a queue (what must be destroyed, and the leases that may see it) and an appender
// (where the next record of each model goes). docs/internals.md has the order of its locks. Only Reclaim, SegmentsSync, SegmentWipe,
// SegmentSync and SegmentsFolder are held during an fsync, and Appender while a segment is begun.
//
// It must not know what is live: it never reads the index or the log, and deletes nothing that it was not told to.
package segments
