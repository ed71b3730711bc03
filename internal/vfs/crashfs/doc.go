// Package crashfs is the crashable twin of the operating system's file system, for tests: a [Disk] holds files in memory
// and knows what of them a power cut would leave.
//
// It owns the model of what is durable. A page that was written is durable after its file's Sync, a directory entry after
// SyncDir; until then each is kept, lost, or kept in part:
//
//	[Disk.PowerCut]  a disk as it could look after the power was lost, another one for each random source
//	[Disk.Unplug], [Disk.Plug]   the volume goes, and comes back in the same boot without what was not durable; the process may live on
//	[Disk.Kill]      a disk as the next process finds it: everything is there, and what was not synced still is not
//	[Disk.CrashAt]   from a given change on nothing is done any more
//	[Disk.Before]    a hook that lets any call fail: not done, done in part, or done and then reported as failed
//
// It promises what vfs.FS promises, but for two things: bytes of a map that lie beyond the end of the file are zeros and do
// not fault, and names below one directory only are known to it.
//
// Files that somebody else writes by their names, past vfs (bbolt does), are real ones: see [Options.Outside].
//
// It must not know what is in the files, but for the order in which bbolt writes its own.
package crashfs
