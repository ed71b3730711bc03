package db

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// A store that is opened read-only keeps nobody out. While it is opened it shares LOCK with other readers, and a writer waits. From then on
// it rests on a copy of index.db in memory, so that a writer can come and go. Where a writer has the store open already, it shows what
// the last checkpoint wrote. What a writer destroys meanwhile is gone for readers, too: no lease of theirs reaches it.

// acquireLock keeps other writers out, or waits for one to be seen. A store that is only read need not have a LOCK (a copy, a read-only
// medium): it is read without one then.
func (s *Store) acquireLock() error {
	name := filepath.Join(s.dir, folder.LockName)
	if !s.o.ReadOnly {
		lock, err := folder.LockAlone(name, false)
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

// opened lets go of what a reader needs no more once the store is open.
func (s *Store) opened() {
	if s.o.ReadOnly && !s.o.alone {
		s.unlock()
	}
}

// lockFormat takes a second lock, which nobody takes for something that a killed process has left behind and removes. A reader looks
// whether a writer has it.
func (e *engine) lockFormat() (err error) {
	name := e.path(folder.FormatName)
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
	e.lock, err = folder.LockAlone(name, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// folder.HoldIndex lets a reader rest on a copy of index.db, unless it keeps writers out.
func (e *engine) holdIndex() (err error) {
	if e.o.alone {
		return nil
	}
	e.asOf = time.Now()
	e.logAsOf, _ = e.fs.List(e.path(folder.LogDir))
	if e.fs, err = folder.HoldIndex(e.fs, e.path(folder.IndexName)); err != nil {
		return err
	}
	if h, ok := e.fs.(folder.HeldIndex); ok && e.o.beside {
		e.asOf = h.Changed()
	}
	return nil
}

// overtaken reports whether the store is not what this reader shows any more, or may not be: somebody writes to it, or has since.
func (e *engine) overtaken() bool {
	if e.o.beside || !e.o.ReadOnly || e.o.alone {
		return e.o.beside
	}
	// A writer begins a new file of the log before anything else.
	if names, err := e.fs.List(e.path(folder.LogDir)); err != nil || !slices.Equal(names, e.logAsOf) {
		return true
	}
	h, ok := e.fs.(folder.HeldIndex)
	if !ok {
		return false
	}
	if h.Moved() {
		return true
	}
	for _, name := range []string{folder.LockName, folder.FormatName} {
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
