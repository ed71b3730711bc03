package engine

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// A store that is opened read-only keeps nobody out. While it is opened it shares LOCK with other readers, and a writer waits. From then on
// it rests on a copy of index.db in memory, so that a writer can come and go. Where a writer has the store open already, it shows what
// the last checkpoint wrote. What a writer destroys meanwhile is gone for readers, too: no lease of theirs reaches it.
//
// db.Store.acquireLock looks at LOCK, lockFormat at FORMAT, holdIndex takes the copy (package folder), recovery.Beside reads it.

// lockFormat takes a second lock, which nobody takes for something that a killed process has left behind and removes. A reader looks
// whether a writer has it.
func (e *Engine) lockFormat() (err error) {
	name := e.Path(folder.FormatName)
	if e.o.ReadOnly {
		lock, err := vfs.ShareLock(name)
		switch {
		case errors.Is(err, vfs.ErrLocked) && e.o.Alone:
			return err
		case errors.Is(err, vfs.ErrLocked):
			e.o.Beside = true
			return nil
		case err != nil: // not there, or not to be read: the store is
			return nil
		case e.o.Alone:
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

// holdIndex lets a reader rest on a copy of index.db, unless it keeps writers out.
func (e *Engine) holdIndex() (err error) {
	if e.o.Alone {
		return nil
	}
	e.asOf = time.Now()
	e.logAsOf, _ = e.FS.List(e.Path(folder.LogDir))
	if e.FS, err = folder.HoldIndex(e.FS, e.Path(folder.IndexName)); err != nil {
		return err
	}
	if h, ok := e.FS.(folder.HeldIndex); ok && e.o.Beside {
		e.asOf = h.Changed()
	}
	return nil
}

// Overtaken reports whether the store is not what this reader shows any more, or may not be: somebody writes to it, or has since.
func (e *Engine) Overtaken() bool {
	if e.o.Beside || !e.o.ReadOnly || e.o.Alone {
		return e.o.Beside
	}
	// A writer begins a new file of the log before anything else.
	if names, err := e.FS.List(e.Path(folder.LogDir)); err != nil || !slices.Equal(names, e.logAsOf) {
		return true
	}
	h, ok := e.FS.(folder.HeldIndex)
	if !ok {
		return false
	}
	if h.Moved() {
		return true
	}
	for _, name := range []string{folder.LockName, folder.FormatName} {
		lock, err := vfs.ShareLock(e.Path(name))
		if errors.Is(err, vfs.ErrLocked) {
			return true
		}
		if err == nil {
			lock.Release()
		}
	}
	return false
}
