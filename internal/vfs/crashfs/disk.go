package crashfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// ErrCrashed is what every call returns from the crash on.
var ErrCrashed = errors.New("the disk has crashed")

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

// Ops returns how many calls there were, and how many of them changed something.
func (d *Disk) Ops() (all, changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops, d.changes
}

// CrashAt lets the disk crash before change number n, counted from 0: it and all calls after it fail with [ErrCrashed].
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = n
}

// Crash lets the disk crash now.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crash()
}

func (d *Disk) crash() {
	if !d.crashed {
		d.look()
		d.crashed = true
	}
}

// Crashed reports whether the crash was.
func (d *Disk) Crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crashed
}

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

func (d *Disk) Create(name string) (vfs.File, error) {
	var f *file
	err := d.call("create", name, 0, func(rel string) error {
		if err := d.folderOf(rel); err != nil {
			return err
		}
		if d.at(rel) != nil {
			return fs.ErrExist
		}
		if d.isOutside(rel) {
			return fmt.Errorf("%w: of those of Options.Outside", errors.ErrUnsupported)
		}
		n := newNode()
		d.do(change{dir: parent(rel), new: rel, node: n})
		f = &file{d: d, n: n, name: name, plugged: d.volume.plugged}
		return nil
	})
	if f == nil || err != nil {
		return nil, err
	}
	return f, nil
}

func (d *Disk) Open(name string, readOnly bool) (vfs.File, error) {
	var f *file
	err := d.call("open", name, 0, func(rel string) error {
		n := d.at(rel)
		switch {
		case n == nil:
			return cmp.Or(d.folderOf(rel), fs.ErrNotExist)
		case n.dir:
			return errors.New("not a regular file but a directory")
		}
		f = &file{d: d, n: n, name: name, readOnly: readOnly, plugged: d.volume.plugged}
		if n.outside {
			var err error
			f.real, err = vfs.OS.Open(name, readOnly)
			return err
		}
		return nil
	})
	if err != nil {
		if f != nil && f.real != nil {
			f.real.Close()
		}
		return nil, err
	}
	return f, nil
}

func (d *Disk) Rename(old, new string) error {
	to, err := d.rel("rename", new)
	if err != nil {
		return err
	}
	return d.call("rename", old, 0, func(from string) error {
		n := d.at(from)
		switch over := d.at(to); {
		case n == nil || d.at(parent(to)) == nil:
			return fs.ErrNotExist
		case n.dir || over != nil && over.dir || parent(from) != parent(to):
			return fmt.Errorf("%w: of directories, or to another", errors.ErrUnsupported)
		}
		if n.outside != d.isOutside(to) {
			return fmt.Errorf("%w: only one is of Options.Outside", errors.ErrUnsupported)
		}
		if n.outside {
			if err := vfs.OS.Rename(old, new); err != nil {
				return err
			}
		}
		d.do(change{dir: parent(to), old: from, new: to, node: n})
		return nil
	})
}

func (d *Disk) Remove(name string) error {
	return d.call("remove", name, 0, func(rel string) error {
		n := d.at(rel)
		if n == nil {
			return cmp.Or(d.folderOf(rel), fs.ErrNotExist)
		}
		if n.dir {
			return vfs.ErrNotRegular
		}
		if n.outside {
			if err := vfs.OS.Remove(name); err != nil {
				return err
			}
		}
		d.do(change{dir: parent(rel), old: rel})
		return nil
	})
}

func (d *Disk) Mkdir(name string) error {
	return d.call("mkdir", name, 0, func(rel string) error {
		if err := d.folderOf(rel); err != nil {
			return err
		}
		if n := d.at(rel); n != nil {
			if !n.dir {
				return fs.ErrExist
			}
			return nil
		}
		d.do(change{dir: parent(rel), new: rel, node: &node{dir: true}})
		return nil
	})
}

func (d *Disk) List(dir string) (names []string, err error) {
	err = d.call("list", dir, 0, func(rel string) error {
		d.look()
		switch n := d.at(rel); {
		case n == nil:
			return nil
		case !n.dir:
			return errors.New("not a directory")
		}
		for name := range d.names {
			if parent(name) == rel {
				names = append(names, name[strings.LastIndexByte(name, '/')+1:])
			}
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

func (d *Disk) Stat(name string) (info vfs.Info, err error) {
	err = d.call("stat", name, 0, func(rel string) error {
		n := d.at(rel)
		if n == nil {
			return cmp.Or(d.folderOf(rel), fs.ErrNotExist)
		}
		if n.outside {
			info, err = vfs.OS.Stat(name)
			return err
		}
		info = n.stat()
		return nil
	})
	return info, err
}

func (d *Disk) SyncDir(dir string) error {
	if dir == filepath.Dir(d.o.Dir) {
		return nil // the name of the disk's own directory is durable
	}
	err := d.call("syncdir", dir, 0, func(rel string) error {
		if n := d.at(rel); n == nil || !n.dir {
			return fs.ErrNotExist
		}
		d.since = slices.DeleteFunc(d.since, func(c change) bool {
			if c.dir == rel {
				c.apply(d.sure)
			}
			return c.dir == rel
		})
		return nil
	})
	if vfs.Passing(err) { // a folder is opened to be synced, and that is what found no file handle, say
		err = fmt.Errorf("%w: %w", vfs.ErrNotSynced, err)
	}
	return err
}

func (d *Disk) Space(dir string) (free uint64, blockBytes int, err error) {
	err = d.call("space", dir, 0, func(string) error {
		free = 1 << 40
		if d.o.Bytes > 0 {
			free = uint64(max(0, d.o.Bytes-d.used()))
		}
		return nil
	})
	return free, pageBytes, err
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
