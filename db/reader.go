package db

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// A store that is opened read-only keeps nobody out. While it is opened it shares LOCK with other readers, and a writer waits. From then on
// it rests on a copy of index.db in memory, so that a writer can come and go. Where a writer has the store open already, it shows what
// the last checkpoint wrote. What a writer destroys meanwhile is gone for readers, too: no lease of theirs reaches it.

// readerWait bounds how long a writer waits for readers that are opening the store, and a reader for a checkpoint to end.
const readerWait = 2 * time.Second

// acquireLock keeps other writers out, or waits for one to be seen. A store that is only read need not have a LOCK (a copy, a read-only
// medium): it is read without one then.
func (s *Store) acquireLock() error {
	name := filepath.Join(s.dir, lockName)
	if !s.o.ReadOnly {
		lock, err := lockAlone(name, false)
		s.lock = lock
		return err
	}
	s.o.beside = false
	lock, err := vfs.ShareLock(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrLocked) && !s.o.alone:
		s.o.beside = true
		return nil
	}
	s.lock = lock
	return err
}

// lockAlone locks a file for a writer. A reader has it for a moment only: that is waited for.
func lockAlone(name string, readOnly bool) (*vfs.Lock, error) {
	for until := time.Now().Add(readerWait); ; time.Sleep(time.Millisecond) {
		lock, err := vfs.AcquireLock(name, readOnly)
		if by := new(vfs.LockedError); !errors.As(err, &by) || by.PID != 0 || time.Now().After(until) {
			return lock, err
		}
	}
}

// opened lets go of what a reader needs no more once the store is open.
func (s *Store) opened() {
	if s.o.ReadOnly && !s.o.alone {
		s.unlock()
	}
}

// lockFormat takes a second lock, which nobody takes for something that a killed process has left behind and removes. A reader looks
// whether a writer has it.
func (e *engine) lockFormat() (err error) {
	name := e.path(formatName)
	if e.o.ReadOnly {
		lock, err := vfs.ShareLock(name)
		switch {
		case errors.Is(err, ErrLocked) && e.o.alone:
			return err
		case errors.Is(err, ErrLocked):
			e.o.beside = true
			return nil
		case err != nil: // not there, or not to be read: the store is
			return nil
		case e.o.alone:
			e.lock = lock
			return nil
		}
		return lock.Release()
	}
	e.lock, err = lockAlone(name, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// holdIndex lets a reader rest on a copy of index.db, unless it keeps writers out.
func (e *engine) holdIndex() (err error) {
	if e.o.alone {
		return nil
	}
	e.asOf = time.Now()
	e.logAsOf, _ = e.fs.List(e.path(walDir))
	if e.fs, err = holdIndex(e.fs, e.path(indexName)); err != nil {
		return err
	}
	if h, ok := e.fs.(heldIndex); ok && e.o.beside {
		e.asOf = h.copy.info.Changed
	}
	return nil
}

// overtaken reports whether the store is not what this reader shows any more, or may not be: somebody writes to it, or has since.
func (e *engine) overtaken() bool {
	if e.o.beside || !e.o.ReadOnly || e.o.alone {
		return e.o.beside
	}
	// A writer begins a new file of the log before anything else.
	if names, err := e.fs.List(e.path(walDir)); err != nil || !slices.Equal(names, e.logAsOf) {
		return true
	}
	h, ok := e.fs.(heldIndex)
	if !ok {
		return false
	}
	if info, err := h.FS.Stat(h.path); err != nil || !info.Changed.Equal(h.copy.info.Changed) {
		return true
	}
	for _, name := range []string{lockName, formatName} {
		lock, err := vfs.ShareLock(e.path(name))
		if errors.Is(err, ErrLocked) {
			return true
		}
		if err == nil {
			lock.Release()
		}
	}
	return false
}

// heldIndex is a file system in which index.db is a copy of what it was at one moment between two checkpoints.
type heldIndex struct {
	vfs.FS
	path string
	copy *memoryFile
}

// holdIndex copies index.db, if it is there, into memory. A writer that has the store open may be writing to it: pages that the last
// commit names are not touched before the next one is whole, so a copy between two looks at the same meta pages is whole.
func holdIndex(fsys vfs.FS, path string) (vfs.FS, error) {
	for until := time.Now().Add(readerWait); ; time.Sleep(5 * time.Millisecond) {
		f, whole, err := copyIndex(fsys, path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, vfs.ErrNotRegular):
			return fsys, nil // whoever needs it says so
		case err != nil:
			return nil, err
		case whole:
			return heldIndex{FS: fsys, path: path, copy: f}, nil
		case time.Now().After(until):
			return nil, fmt.Errorf("%s: it changed all the time for %v: %w", path, readerWait, ErrLocked)
		}
	}
}

// copyIndex copies index.db, and reports whether its meta pages stayed what they were meanwhile.
func copyIndex(fsys vfs.FS, path string) (_ *memoryFile, whole bool, err error) {
	f, err := fsys.Open(path, true)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	metas, err := beginning(f, index.MetaBytes)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat() // before the metas it could be shorter than they say
	if err != nil {
		return nil, false, err
	}
	b, err := beginning(f, info.Size)
	if err != nil {
		return nil, false, err
	}
	again, err := beginning(f, index.MetaBytes)
	whole = bytes.HasPrefix(b, metas) && bytes.Equal(metas, again)
	return &memoryFile{Reader: bytes.NewReader(b), name: path, info: info, b: b}, whole, err
}

// beginning reads the first n bytes of a file, or all if it has fewer.
func beginning(f vfs.File, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(io.NewSectionReader(f, 0, n), b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:got], err
}

func (h heldIndex) Open(name string, readOnly bool) (vfs.File, error) {
	if name == h.path && readOnly {
		return h.copy, nil
	}
	return h.FS.Open(name, readOnly)
}

func (h heldIndex) Stat(name string) (vfs.Info, error) {
	if name == h.path {
		return h.copy.info, nil
	}
	return h.FS.Stat(name)
}

// memoryFile is a file's bytes as they once were.
type memoryFile struct {
	*bytes.Reader
	name string
	info vfs.Info
	b    []byte
}

func (f *memoryFile) Name() string                       { return f.name }
func (f *memoryFile) Close() error                       { return nil }
func (f *memoryFile) Stat() (vfs.Info, error)            { return f.info, nil }
func (f *memoryFile) WriteAt([]byte, int64) (int, error) { return 0, ErrReadOnly }
func (f *memoryFile) Sync() error                        { return ErrReadOnly }
func (f *memoryFile) Truncate(int64) error               { return ErrReadOnly }
func (f *memoryFile) Allocate(int64, int64) error        { return ErrReadOnly }
func (f *memoryFile) Punch(off, n int64) (bool, error)   { return false, ErrReadOnly }
func (f *memoryFile) Map(size int64) (vfs.Mapping, error) {
	return memoryMap{f.b[:min(size, int64(len(f.b)))]}, nil
}

type memoryMap struct{ b []byte }

func (m memoryMap) Bytes() []byte       { return m.b }
func (memoryMap) WillNeed(off, n int64) {}
func (memoryMap) DontNeed(off, n int64) {}
func (memoryMap) Close() error          { return nil }
