package wal

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// sectorBytes is what a power cut keeps or drops as a whole.
const sectorBytes = 512

// memFS is a file system in memory that knows what a power cut would leave: what was synced, and at random some of the
// sectors and the first of the directory changes that were not.
type memFS struct {
	mu    sync.Mutex
	names map[string]*memNode   // guarded by mu
	sure  map[string]*memNode   // as of the last SyncDir; guarded by mu
	since []map[string]*memNode // the state after each later change; guarded by mu
	limit int64                 // bytes that can be allocated; 0 for no limit; guarded by mu

	// before is asked before every operation; its error is the operation's. It runs without mu.
	before func(op, name string) error
	// dropped, if set, is asked whether a sync fails and the kernel marks the pages clean, as Linux does.
	dropped func(name string) bool
}

type memNode struct {
	now, sure []byte // guarded by memFS.mu
	dirty     map[int64]bool
}

func newMemFS() *memFS {
	return &memFS{names: map[string]*memNode{}, sure: map[string]*memNode{}}
}

// errShort makes a write stop after that many bytes.
type errShort int

func (errShort) Error() string { return "short write (injected)" }

// errDone makes a rename fail after it was done.
var errDone = errors.New("failed after all was done (injected)")

func (m *memFS) enter(op, name string) error {
	if m.before != nil {
		if err := m.before(op, name); err != nil {
			return err
		}
	}
	return nil
}

// changed records a directory change. Its caller holds mu.
func (m *memFS) changed() { m.since = append(m.since, maps.Clone(m.names)) }

func (m *memFS) Create(name string) (vfs.File, error) {
	if err := m.enter("create", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	m.names[name] = &memNode{dirty: map[int64]bool{}}
	m.changed()
	return &memFile{m: m, n: m.names[name], name: name}, nil
}

func (m *memFS) Open(name string, readOnly bool) (vfs.File, error) {
	if err := m.enter("open", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{m: m, n: m.names[name], name: name, readOnly: readOnly}, nil
}

func (m *memFS) Rename(old, new string) error {
	err := m.enter("rename", old)
	if err != nil && err != errDone {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[old] == nil {
		return &fs.PathError{Op: "rename", Path: old, Err: fs.ErrNotExist}
	}
	m.names[new] = m.names[old]
	delete(m.names, old)
	m.changed()
	return err
}

func (m *memFS) Remove(name string) error {
	if err := m.enter("remove", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.names, name)
	m.changed()
	return nil
}

func (m *memFS) Mkdir(string) error { return nil }

func (m *memFS) List(dir string) ([]string, error) {
	if err := m.enter("list", dir); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *memFS) Stat(name string) (vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[name]
	if n == nil {
		return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return vfs.Info{Size: int64(len(n.now)), Allocated: int64(len(n.now)), Regular: true}, nil
}

func (m *memFS) SyncDir(dir string) error {
	if err := m.enter("syncdir", dir); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sure, m.since = maps.Clone(m.names), nil
	return nil
}

func (m *memFS) Space(string) (uint64, int, error) { return 1 << 40, 4096, nil }

// used is what is allocated. Its caller holds mu.
func (m *memFS) used() (n int64) {
	for _, node := range m.names {
		n += int64(len(node.now))
	}
	return n
}

// grow makes the file at least size bytes long, if the disk has room. Its caller holds mu.
func (m *memFS) grow(n *memNode, size int64) error {
	more := size - int64(len(n.now))
	if more <= 0 {
		return nil
	}
	if m.limit > 0 && m.used()+more > m.limit {
		return vfs.ErrNoSpace
	}
	n.now = append(n.now, make([]byte, more)...)
	return nil
}

// kill returns what another process finds after this one was killed; a power cut may still come.
func (m *memFS) kill() *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newMemFS()
	c.limit = m.limit
	copies := map[*memNode]*memNode{}
	clone := func(names map[string]*memNode) map[string]*memNode {
		to := map[string]*memNode{}
		for name, n := range names {
			if copies[n] == nil {
				copies[n] = &memNode{now: slices.Clone(n.now), sure: slices.Clone(n.sure), dirty: maps.Clone(n.dirty)}
			}
			to[name] = copies[n]
		}
		return to
	}
	c.names, c.sure = clone(m.names), clone(m.sure)
	for _, names := range m.since {
		c.since = append(c.since, clone(names))
	}
	return c
}

// powerCut returns what is there after power was lost.
func (m *memFS) powerCut(rnd *rand.Rand) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := m.sure
	if k := rnd.IntN(len(m.since) + 1); k > 0 {
		names = m.since[k-1]
	}
	c := newMemFS()
	c.limit = m.limit
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		b := n.left(rnd)
		c.names[name] = &memNode{now: b, sure: slices.Clone(b), dirty: map[int64]bool{}}
	}
	c.sure = maps.Clone(c.names)
	return c
}

// left is what of a file's bytes a power cut leaves.
func (n *memNode) left(rnd *rand.Rand) []byte {
	b := slices.Clone(n.sure)
	if len(b) > len(n.now) {
		b = b[:len(n.now)]
	}
	if k := len(n.now) - len(b); k > 0 && rnd.IntN(2) == 0 {
		b = append(b, make([]byte, k)...)
	}
	keep := rnd.IntN(3) // none, some, all
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		from, to := s*sectorBytes, min((s+1)*sectorBytes, int64(len(n.now)), int64(len(b)))
		if from < to && (keep == 2 || keep == 1 && rnd.IntN(2) == 0) {
			copy(b[from:to], n.now[from:to])
		}
	}
	return b
}

type memFile struct {
	m        *memFS
	n        *memNode
	name     string
	readOnly bool
	closed   bool
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) enter(op string) error {
	f.m.mu.Lock()
	closed := f.closed
	f.m.mu.Unlock()
	if closed {
		return fs.ErrClosed
	}
	if f.readOnly && op != "read" {
		return fs.ErrPermission
	}
	return f.m.enter(op, f.name)
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.enter("read"); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off >= int64(len(f.n.now)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.now[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	var short errShort
	err := f.enter("write")
	if errors.As(err, &short) {
		b = b[:min(int(short), len(b))]
	} else if err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.grow(f.n, off+int64(len(b))); err != nil {
		return 0, err
	}
	copy(f.n.now[off:], b)
	for s := off / sectorBytes; s*sectorBytes < off+int64(len(b)); s++ {
		f.n.dirty[s] = true
	}
	return len(b), err
}

func (f *memFile) Stat() (vfs.Info, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return vfs.Info{Size: int64(len(f.n.now)), Allocated: int64(len(f.n.now)), Regular: true}, nil
}

func (f *memFile) Sync() error {
	if err := f.enter("sync"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.dropped != nil && f.m.dropped(f.name) {
		f.n.dirty = map[int64]bool{}
		return errInjected
	}
	if f.m.dropped == nil {
		f.n.sure, f.n.dirty = slices.Clone(f.n.now), map[int64]bool{}
		return nil
	}
	// Only what is dirty is written.
	sure := make([]byte, len(f.n.now))
	copy(sure, f.n.sure)
	for s := range f.n.dirty {
		if from, to := s*sectorBytes, min((s+1)*sectorBytes, int64(len(sure))); from < to {
			copy(sure[from:to], f.n.now[from:to])
		}
	}
	f.n.sure, f.n.dirty = sure, map[int64]bool{}
	return nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.enter("truncate"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.now = slices.Clone(f.n.now[:min(size, int64(len(f.n.now)))])
	return f.m.grow(f.n, size)
}

func (f *memFile) Allocate(off, n int64) error {
	if err := f.enter("allocate"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.m.grow(f.n, off+n)
}

func (f *memFile) Punch(off, n int64) (bool, error)    { return false, errors.ErrUnsupported }
func (f *memFile) Map(size int64) (vfs.Mapping, error) { return nil, errors.ErrUnsupported }
