package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// pageBytes is what a file's space is given out in, and what the cache writes back. sectorBytes is what a power cut keeps
// or drops; now and then it cuts one in two.
const (
	pageBytes   = 4096
	sectorBytes = 512
)

// Options say what a disk is like.
type Options struct {
	// Dir is the directory that the disk stands for: a real and empty one, in which only the files of Outside appear.
	Dir string
	// Outside names files in Dir that are written past this disk, by bbolt. They are real files; the disk copies them
	// when they change, and plays back their crashes: which of the names is there follows the same rules as for all
	// others, and the contents are those of the last commit, or of one that the crash cut short (see outside.go).
	Outside []string
	// Bytes is how much the files can occupy, those of Outside excepted. 0: no limit.
	Bytes int64
}

// Disk is a file system in memory. It is safe for concurrent use.
type Disk struct {
	underWay atomic.Int32 // calls that have begun and not ended

	o Options

	mu      sync.Mutex
	names   map[string]*node // relative to Dir, slashes; guarded by mu
	sure    map[string]*node // what is durable of names; guarded by mu
	since   []change         // what was done to names since, and is not durable; guarded by mu
	ops     int              // calls so far; guarded by mu
	changes int              // those among them that change something; guarded by mu
	crashAt int              // guarded by mu; -1: never
	crashed bool             // guarded by mu
	before  func(Op) error   // guarded by mu; called without it
	head    [metaBytes]byte  // guarded by mu: what look reads into
	volume  volume           // guarded by mu
}

// change is something done to the entries of a directory. A rename is one change, kept or lost as a whole.
type change struct {
	dir      string
	old, new string // "" of nothing: a creation has no old name, a removal no new one
	node     *node  // that got the new name
}

// New returns an empty disk.
func New(o Options) *Disk {
	return &Disk{o: o, crashAt: -1, names: map[string]*node{}, sure: map[string]*node{}}
}

// Dir is the directory that the disk stands for.
func (d *Disk) Dir() string { return d.o.Dir }

// rel turns a full path into a key of names.
func (d *Disk) rel(op, name string) (string, error) {
	r, err := filepath.Rel(d.o.Dir, name)
	if err != nil || r == ".." || strings.HasPrefix(r, ".."+string(filepath.Separator)) {
		return "", &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("not below %s", d.o.Dir)}
	}
	return filepath.ToSlash(r), nil
}

func parent(rel string) string {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i]
	}
	return "."
}

// at is the node of that name; the directory itself always exists. The caller holds mu.
func (d *Disk) at(rel string) *node {
	if rel == "." {
		return &node{dir: true}
	}
	return d.names[rel]
}

// folderOf says why nothing can be made under that name; nil if it can. The caller holds mu.
func (d *Disk) folderOf(rel string) error {
	switch n := d.at(parent(rel)); {
	case n == nil:
		return fs.ErrNotExist
	case !n.dir:
		return errors.New("not a directory")
	}
	return nil
}

// do changes the entries. The caller holds mu.
func (d *Disk) do(c change) {
	c.apply(d.names)
	d.since = append(d.since, c)
}

func (c change) apply(names map[string]*node) {
	if c.old != "" {
		delete(names, c.old)
	}
	if c.new != "" {
		names[c.new] = c.node
	}
}

// used is what the files occupy. The caller holds mu.
func (d *Disk) used() (n int64) {
	for _, x := range d.names {
		n += int64(x.blocks) * pageBytes
	}
	return n
}

// SetBytes changes how much the files can occupy.
func (d *Disk) SetBytes(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.o.Bytes = n
}

// Used is what the files occupy, those of Outside excepted.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used()
}

// volume says whether the volume below the disk is there (volume.go).
type volume struct {
	gone    bool
	plugged int  // how often it came back to the process that had it
	went    bool // it came back at least once, in the same boot
}

// metaBytes are the pages that every transaction of bbolt changes.
const metaBytes = 2 * pageBytes

// fits reports whether so many more pages fit on the disk. The caller holds mu.
func (d *Disk) fits(pages int) bool {
	return pages == 0 || d.o.Bytes == 0 || d.used()+int64(pages)*pageBytes <= d.o.Bytes
}

func (d *Disk) empty(dir string) *Disk {
	o := d.o
	o.Dir = dir
	out := New(o)
	out.volume.went = d.volume.went
	return out
}
