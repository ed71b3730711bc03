package db

import (
	"errors"
	"io/fs"
	"path/filepath"

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
