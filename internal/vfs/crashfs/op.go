package crashfs

import "fmt"

// Op is one call of a [Disk] or of one of its files.
type Op struct {
	N      int    // calls before it
	Change int    // changes before it
	Kind   string // the method, in small letters: create, open, rename, remove, mkdir, list, stat, syncdir, space, read, write, sync, truncate, allocate, punch, map, close
	Name   string // relative to the disk's directory
	Len    int    // bytes of a read or a write
}

// Changes reports whether the call changes what is on the disk, or what of it is durable.
func (o Op) Changes() bool { return changing[o.Kind] }

var changing = map[string]bool{
	"create": true, "rename": true, "remove": true, "mkdir": true, "syncdir": true,
	"write": true, "sync": true, "truncate": true, "allocate": true, "punch": true,
}

// Short is an error for [Disk.Before]: a read or a write does so many bytes and then fails with Err. Other calls do
// nothing.
type Short struct {
	Bytes int
	Err   error
}

func (e *Short) Error() string { return fmt.Sprintf("after %d bytes: %v", e.Bytes, e.Err) }
func (e *Short) Unwrap() error { return e.Err }

// Late is an error for [Disk.Before]: the call is done, and then fails with Err. Of a sync, it is not known what of it
// was done.
type Late struct{ Err error }

func (e *Late) Error() string { return fmt.Sprintf("after it was done: %v", e.Err) }
func (e *Late) Unwrap() error { return e.Err }
