package vfs

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// Handle is a file that need not be open while nobody uses it: a process may have thousands of segments and sessions, and fewer files open
// than that. Whoever uses it holds it, and what the methods of [File] do they do only then. Between two uses it may be closed, and the next
// one opens it again by its name, which must not have become another file's. What was written is synced before that, so that no error of
// the disk gets lost.
type Handle struct {
	fs       FS
	name     string
	readOnly bool
	failed   func(err error)
	unsynced atomic.Bool // written since the last Sync began

	// Again looks at the file when it was opened again, before it is used: somebody may have put another one in its place. An error is that of Hold.
	// Nil: nobody looks. It is set by who made the handle, and must not use it.
	Again func(f File) error

	mu   sync.Mutex // guards all below; held while the file is opened, or synced to be closed
	f    File       // nil: it is not open just now
	uses int
	gone error // of a sync before it was closed: what is said of the bytes from then on
	idle *list.Element
}

// OpenHandle opens an existing file, as [FS.Open] does, and holds it. failed is told of an fsync that failed between two uses; it must not
// use the handle.
func OpenHandle(fsys FS, name string, readOnly bool, failed func(err error)) (*Handle, error) {
	h := &Handle{fs: fsys, name: name, readOnly: readOnly, failed: failed}
	return h, h.Hold()
}

// CreateHandle makes a file, as [FS.Create] does, and holds it.
func CreateHandle(fsys FS, name string, failed func(err error)) (*Handle, error) {
	f, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	pool.count(1)
	return &Handle{fs: fsys, name: name, failed: failed, f: f, uses: 1}, nil
}

// Hold sees to it that the file is open until Release.
func (h *Handle) Hold() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		f, err := h.fs.Open(h.name, h.readOnly)
		if err != nil {
			return err
		}
		if h.Again != nil {
			if err := h.Again(f); err != nil {
				f.Close()
				return err
			}
		}
		h.f = f
		pool.count(1)
	}
	h.uses++
	pool.busy(h)
	return nil
}

// Release ends a use.
func (h *Handle) Release() {
	h.mu.Lock()
	if h.uses--; h.uses == 0 {
		pool.rest(h)
	}
	h.mu.Unlock()
	pool.trim()
}

// Close closes the file for good, held or not, as it is.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	pool.busy(h)
	if h.f == nil {
		return nil
	}
	err := h.f.Close()
	h.f = nil
	pool.count(-1)
	return err
}

// park closes the file, if nobody uses it, and reports whether it did. What was written is synced first, where dirty allows that.
func (h *Handle) park(dirty bool) (done bool, failed error) {
	if !h.mu.TryLock() { // it is in use; or this is called by who opens it
		return false, nil
	}
	defer h.mu.Unlock()
	if h.f == nil || h.uses > 0 || h.unsynced.Load() && !dirty {
		return false, nil
	}
	if h.unsynced.Load() {
		if failed = h.f.Sync(); failed != nil {
			h.gone = failed
		}
		h.unsynced.Store(false)
	}
	h.f.Close()
	h.f = nil
	pool.busy(h)
	pool.count(-1)
	return true, failed
}

// held is the open file.
func (h *Handle) held() (File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return nil, os.ErrClosed
	}
	return h.f, nil
}

// writing is held for what changes the file.
func (h *Handle) writing() (File, error) {
	h.unsynced.Store(true)
	return h.held()
}

// Name implements [File], as the others do.
func (h *Handle) Name() string { return h.name }

func (h *Handle) ReadAt(b []byte, off int64) (int, error) {
	f, err := h.held()
	if err != nil {
		return 0, err
	}
	return f.ReadAt(b, off)
}

func (h *Handle) WriteAt(b []byte, off int64) (int, error) {
	f, err := h.writing()
	if err != nil {
		return 0, err
	}
	return f.WriteAt(b, off)
}

func (h *Handle) Stat() (Info, error) {
	f, err := h.held()
	if err != nil {
		return Info{}, err
	}
	return f.Stat()
}

func (h *Handle) Sync() error {
	f, err := h.held()
	if err != nil {
		return err
	}
	h.mu.Lock()
	gone := h.gone
	h.mu.Unlock()
	if gone != nil {
		return gone
	}
	h.unsynced.Store(false) // what is written from here on is marked again
	if err = f.Sync(); err != nil {
		h.unsynced.Store(true)
	}
	return err
}

func (h *Handle) Truncate(size int64) error {
	f, err := h.writing()
	if err != nil {
		return err
	}
	return f.Truncate(size)
}

func (h *Handle) Allocate(off, n int64) error {
	f, err := h.writing()
	if err != nil {
		return err
	}
	return f.Allocate(off, n)
}

func (h *Handle) Punch(off, n int64) (bool, error) {
	f, err := h.writing()
	if err != nil {
		return false, err
	}
	return f.Punch(off, n)
}

func (h *Handle) Map(size int64) (Mapping, error) {
	f, err := h.held()
	if err != nil {
		return nil, err
	}
	return f.Map(size)
}

// NextData implements [Sparse].
func (h *Handle) NextData(off int64) (data, hole int64, ok bool) {
	f, err := h.held()
	if sparse, is := f.(Sparse); err == nil && is {
		return sparse.NextData(off)
	}
	return 0, 0, false
}

// pool is all handles of the process that are open: the limit of open files is the process's, too.
var pool handles

type handles struct {
	open atomic.Int64
	mu   sync.Mutex
	idle list.List // of *Handle that are open and not in use, the one that rests longest first
}

func (p *handles) count(n int64) { p.open.Add(n) }

// busy takes h from those that rest. The caller holds h.mu.
func (p *handles) busy(h *Handle) {
	if h.idle == nil {
		return
	}
	p.mu.Lock()
	p.idle.Remove(h.idle)
	p.mu.Unlock()
	h.idle = nil
}

// rest adds h to those that rest. The caller holds h.mu.
func (p *handles) rest(h *Handle) {
	if h.f == nil {
		return
	}
	p.mu.Lock()
	h.idle = p.idle.PushBack(h)
	p.mu.Unlock()
}

// resting are those that rest, the one that rests longest first.
func (p *handles) resting() (all []*Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.idle.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*Handle))
	}
	return all
}

// Handles is how many files of segments and sessions stay open while they are not in use, in the whole process: a quarter of what the
// process may have open, since it has other files. It asks the system each time, because hosts change their limit.
func Handles() int {
	const most, least = 1024, 4
	limit, known := handleLimit()
	if !known || limit > 4*most {
		return most
	}
	return max(int(limit/4), least)
}

// trim closes those that rest longest, until no more are open than may be.
func (p *handles) trim() {
	if p.open.Load() <= 4 {
		return
	}
	most := int64(Handles())
	if p.open.Load() <= most {
		return
	}
	for _, h := range p.resting() {
		if p.open.Load() <= most {
			return
		}
		if _, err := h.park(true); err != nil {
			h.failed(err)
		}
	}
}

// free closes what rests, because somebody needs a handle and there is none: first what has nothing to sync. It returns how many that were.
func (p *handles) free() (n int) {
	all := p.resting()
	for _, dirty := range []bool{false, true} {
		for _, h := range all {
			done, err := h.park(dirty)
			if err != nil {
				go h.failed(err) // whoever needs the handle may be about to tell of another failure
			}
			if done {
				n++
			}
		}
		if n > 0 {
			return n
		}
	}
	return n
}

// WithHandle runs open, which opens a file. Where the process has no handle left, those of segments and sessions that are not in use are
// closed, and it is tried again. The error says what the limit is.
func WithHandle(open func() error) error {
	err := open()
	for range 3 { // somebody else may be faster
		if !noHandles(err) || pool.free() == 0 {
			break
		}
		err = open()
	}
	if limit, known := handleLimit(); noHandles(err) && known {
		err = fmt.Errorf("%w (the limit of this process is %d: RLIMIT_NOFILE, ulimit -n)", err, limit)
	}
	return err
}

// NoMemory reports whether err says that the process has no more memory, or maps.
func NoMemory(err error) bool { return err != nil && errors.Is(err, noMemory) }

// noHandles reports whether err says that the process, or the system, has no more files to open.
func noHandles(err error) bool {
	return err != nil && slices.ContainsFunc(handleErrors, func(want error) bool { return errors.Is(err, want) })
}
