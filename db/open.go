package db

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/lifecycle"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// acquireLock keeps other writers out, or waits for one to be seen. A store that is only read need not have a LOCK (a copy, a read-only
// medium): it is read without one then.
func (s *Store) acquireLock() error {
	name := filepath.Join(s.dir, folder.LockName)
	if !s.o.ReadOnly {
		lock, err := folder.LockAlone(name, false)
		s.lock = lock
		return err
	}
	s.beside = false
	lock, err := vfs.ShareLock(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrLocked) && !s.o.Inside.KeepOut:
		s.beside = true
		return nil
	}
	s.lock = lock
	return err
}

// opened lets go of what a reader needs no more once the store is open.
func (s *Store) opened() {
	if s.o.ReadOnly && !s.o.Inside.KeepOut {
		s.unlock()
	}
}

// Open opens the store in dir, or makes one if dir is missing, or empty but for what systems put there (docs/format/store.md). It takes milliseconds, whatever the store
// holds, unless the index is lost: rebuilding it reads every record's header, reports progress and can be cancelled.
//
// A directory is a store if it has a FORMAT, or, where that is lost, a segment whose header is sound. In any other directory that is not
// empty nothing is changed: ErrNotEmpty. Nor is a file that has one of the store's names and proves to be somebody else's: ErrForeign.
//
// Several processes may have a store open that is opened read-only, beside one that writes: see [Options.ReadOnly].
//
// Errors: ErrLocked if another writer has the store open, ErrNotEmpty, ErrForeign, ErrVersion, ErrUnsafeDir, ErrCorrupt where nothing can be
// rebuilt. A damaged index, Bloom filter or FORMAT is rebuilt; damaged records and log frames are logged and left out.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	unsaid := o.MinFree == 0
	o = o.withDefaults()
	disk := o.Inside.FS
	if dir == "" { // a variable that is not set, and not the current directory
		return nil, errors.New("db: Open without the name of a directory")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := folder.Prepare(disk, dir, o.ReadOnly, o.AllowSharedDir); err != nil {
		return nil, err
	}
	if unsaid {
		o.MinFree = folder.MinFree(dir)
	}
	if !o.ReadOnly {
		if err := folder.RefuseOthers(disk, dir); err != nil { // before a LOCK is left among them
			return nil, err
		}
	}
	if err := folder.CheckFiles(dir, o.AllowSharedDir, o.Logger); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, o: o, kept: engine.NewKept(), lifecycle: lifecycle.New(), gen: 1}
	s.pressed.Store(new([]*pressed))
	if err := s.acquireLock(); err != nil {
		return nil, err
	}
	defer func() { // also where Progress panics
		if s.eng == nil {
			s.unlock()
		}
	}()
	if s.eng, err = engine.Open(ctx, dir, s.engineOptions()); err != nil {
		return nil, err
	}
	s.opened()
	s.eng.Start(s.indexDamaged)
	return s, nil
}
