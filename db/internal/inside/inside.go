package inside

import "github.com/dormousekv/dormouse/internal/vfs"

// Options are what db.Open takes from tools and tests. The zero value is what a user's store has.
type Options struct {
	FS           vfs.FS // what the store's files lie on; nil: the operating system's
	KeepOut      bool   // a store that is opened read-only keeps writers out, so that its files stay as they are
	LogAhead     int64  // bounds what is reserved ahead in the log; 0: by the budget alone
	CompactLeast int64  // bytes that rewriting segments must give back in all, or Compact leaves them
}

// Disk is the file system of the store's files.
func (o Options) Disk() vfs.FS {
	if o.FS == nil {
		return vfs.OS
	}
	return o.FS
}
