package storetest

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Disk is a file system of which a test decides what fails.
type Disk struct {
	disk   vfs.FS
	before atomic.Pointer[func(Call) error]
	engine atomic.Value // of weak.Pointer[engine.Engine]: an engine knows its store
}

// Call is one call of a [Disk] or of one of its files.
type Call struct {
	Kind   string // the method, in small letters: create, open, rename, remove, mkdir, list, stat, syncdir, space, read, write, sync, truncate, allocate, punch, map, willneed, opendirect, readdirect, closedirect
	Name   string // the file's or folder's path
	Off, N int64  // of a read, a write, an allocation or a punch: which bytes; N is also the size of a map and what a truncate leaves
}

// Changes reports whether the call changes what is on the disk, or what of it is durable.
func (c Call) Changes() bool {
	switch c.Kind {
	case "open", "list", "stat", "space", "read", "map", "willneed", "opendirect", "readdirect", "closedirect":
		return false
	}
	return true
}

// InSegments reports whether the call is one of a segment, InLog whether it is one of a file of the log.
func (c Call) InSegments() bool { return strings.HasSuffix(c.Name, ".seg") }

// InLog reports whether the call is one of a file of the log.
func (c Call) InLog() bool { return strings.HasSuffix(c.Name, ".wal") }

// Over is a disk on which nothing fails yet.
func Over(disk vfs.FS) *Disk { return &Disk{disk: disk} }

// Failing is the machine's disk. before is asked before every call, and its error is the call's: nothing is done then, unless it is a [*Short].
func Failing(before func(Call) error) *Disk {
	d := Over(vfs.OS)
	d.Before(before)
	return d
}

// Before sets the hook of [Failing]. Nil: no hook.
func (d *Disk) Before(before func(Call) error) {
	if before == nil {
		d.before.Store(nil)
		return
	}
	d.before.Store(&before)
}

// Short is an error for [Disk.Before]: a read or a write does so many bytes, and then fails with Err.
type Short struct {
	Bytes int
	Err   error
}

func (e *Short) Error() string { return e.Err.Error() }
func (e *Short) Unwrap() error { return e.Err }

func (d *Disk) call(c Call) error {
	hook := d.before.Load()
	if hook == nil {
		return nil
	}
	err := (*hook)(c)
	if err == nil || errors.As(err, new(*fs.PathError)) {
		return err
	}
	return &fs.PathError{Op: c.Kind, Path: c.Name, Err: err}
}

func (d *Disk) file(kind, name string, open func() (vfs.File, error)) (vfs.File, error) {
	if err := d.call(Call{Kind: kind, Name: name}); err != nil {
		return nil, err
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	return &file{File: f, d: d}, nil
}

// Started implements [engine.Watcher].
func (d *Disk) Started(e *engine.Engine) { d.engine.Store(weak.Make(e)) }

// Create implements [vfs.FS], as the others do.
func (d *Disk) Create(name string) (vfs.File, error) {
	return d.file("create", name, func() (vfs.File, error) { return d.disk.Create(name) })
}

func (d *Disk) Open(name string, readOnly bool) (vfs.File, error) {
	return d.file("open", name, func() (vfs.File, error) { return d.disk.Open(name, readOnly) })
}

func (d *Disk) Rename(old, new string) error {
	if err := d.call(Call{Kind: "rename", Name: new}); err != nil {
		return err
	}
	return d.disk.Rename(old, new)
}

func (d *Disk) Remove(name string) error {
	if err := d.call(Call{Kind: "remove", Name: name}); err != nil {
		return err
	}
	return d.disk.Remove(name)
}

func (d *Disk) Mkdir(name string) error {
	if err := d.call(Call{Kind: "mkdir", Name: name}); err != nil {
		return err
	}
	return d.disk.Mkdir(name)
}

func (d *Disk) List(dir string) ([]string, error) {
	if err := d.call(Call{Kind: "list", Name: dir}); err != nil {
		return nil, err
	}
	return d.disk.List(dir)
}

func (d *Disk) Stat(name string) (vfs.Info, error) {
	if err := d.call(Call{Kind: "stat", Name: name}); err != nil {
		return vfs.Info{}, err
	}
	return d.disk.Stat(name)
}

func (d *Disk) SyncDir(dir string) error {
	if err := d.call(Call{Kind: "syncdir", Name: dir}); err != nil {
		return err
	}
	return d.disk.SyncDir(dir)
}

func (d *Disk) Space(dir string) (free uint64, blockBytes int, err error) {
	if err := d.call(Call{Kind: "space", Name: dir}); err != nil {
		return 0, 0, err
	}
	return d.disk.Space(dir)
}

type file struct {
	vfs.File
	d *Disk
}

func (f *file) call(kind string, off, n int64) error {
	return f.d.call(Call{Kind: kind, Name: filepath.Clean(f.Name()), Off: off, N: n})
}

func (f *file) some(kind string, b []byte, off int64, do func(b []byte, off int64) (int, error)) (int, error) {
	return some(f.call(kind, off, int64(len(b))), b, off, do)
}

// some does a read or a write, as far as the hook's error lets it.
func some(err error, b []byte, off int64, do func(b []byte, off int64) (int, error)) (int, error) {
	if err == nil {
		return do(b, off)
	}
	var short *Short
	if errors.As(err, &short) {
		n, _ := do(b[:min(short.Bytes, len(b))], off)
		return n, err
	}
	return 0, err
}

func (f *file) ReadAt(b []byte, off int64) (int, error) { return f.some("read", b, off, f.File.ReadAt) }
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	return f.some("write", b, off, f.File.WriteAt)
}

func (f *file) Stat() (vfs.Info, error) {
	if err := f.call("stat", 0, 0); err != nil {
		return vfs.Info{}, err
	}
	return f.File.Stat()
}

func (f *file) Sync() error {
	if err := f.call("sync", 0, 0); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *file) Truncate(size int64) error {
	if err := f.call("truncate", 0, size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *file) Allocate(off, n int64) error {
	if err := f.call("allocate", off, n); err != nil {
		return err
	}
	return f.File.Allocate(off, n)
}

func (f *file) Punch(off, n int64) (bool, error) {
	if err := f.call("punch", off, n); err != nil {
		return false, err
	}
	return f.File.Punch(off, n)
}

func (f *file) Map(size int64) (vfs.Mapping, error) {
	if err := f.call("map", 0, size); err != nil {
		return nil, err
	}
	return f.File.Map(size)
}

// NextData implements [vfs.Sparse] as the file below does.
func (f *file) NextData(off int64) (data, hole int64, ok bool) {
	if s, is := f.File.(vfs.Sparse); is {
		return s.NextData(off)
	}
	return 0, 0, false
}
