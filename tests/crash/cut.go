package main

import (
	"os"
	"path/filepath"
)

// cutter is how a working store is cut off: where it works, and what is left of it afterwards. One cutter serves one store
// through all of its lives.
type cutter interface {
	// Dir is where the next child works.
	Dir() string
	// Cut ends the child, at whatever it is doing. When it returns, the child is dead, no acknowledgement is written any
	// more that what is left does not bear out, and the directory can be opened.
	Cut(c *child) (left, error)
	// Close gives up what Cut and Dir need. The store is no longer wanted.
	Close() error
}

// left is what a cut leaves.
type left struct {
	Dir   string // where the store is found; the next child works in cutter.Dir
	Power bool   // the power was lost: in db.Process mode what was put after the last checkpoint may be gone
	Went  bool   // the volume went, once, and came back in the same boot: a frame of the log that it lost may look damaged
	Note  string // what a finding should say about the cut
}

// killed cuts with SIGKILL. What was written survives in the page cache.
type killed struct{ dir string }

// newKilled makes a cutter for a store in a new folder below dir.
func newKilled(dir, name string) (cutter, error) {
	dir = filepath.Join(dir, name)
	return &killed{dir}, os.MkdirAll(dir, 0o700)
}

func (k *killed) Dir() string { return filepath.Join(k.dir, "store") }

func (k *killed) Cut(c *child) (left, error) { return left{Dir: k.Dir()}, c.Kill() }

func (k *killed) Close() error { return os.RemoveAll(k.dir) }
