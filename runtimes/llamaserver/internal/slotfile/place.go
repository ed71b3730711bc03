package slotfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

const (
	folderPrefix = "dormouse-slots-"
	folderLock   = "LOCK"
)

// makeSlotFolder makes a folder for slot files: in the given one, or, where that is empty, in the first that takes it. Those that lie in memory are
// first, and the store's volume is last. What a name promises is not believed: each is tried.
func makeSlotFolder(in, store string) (*Folder, error) {
	places := []string{in}
	if in == "" {
		places = append(memoryPlaces(), os.TempDir(), filepath.Dir(store), store)
	}
	var failed []error
	for _, place := range places {
		f, err := slotFolderIn(place)
		if err == nil {
			return f, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

func slotFolderIn(place string) (*Folder, error) {
	place, err := filepath.Abs(place) // the server may work in another folder
	if err != nil {
		return nil, err
	}
	sweep(place)
	dir, err := os.MkdirTemp(place, folderPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	f := &Folder{Path: dir}
	if f.lock, err = vfs.AcquireLock(filepath.Join(dir, folderLock), false); err == nil {
		f.look()
		err = f.try()
	}
	if err != nil {
		f.Close()
		os.RemoveAll(dir)
		return nil, err
	}
	return f, nil
}

// remake makes a folder again that was made here and is gone: what lies in /tmp too long, or in a user's folder of memory after the last logout, is removed.
func (f *Folder) remake() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return &fs.PathError{Op: "open", Path: f.Path, Err: fs.ErrNotExist}
	}
	if err := os.Mkdir(f.Path, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) { // by another request, just now
			return nil
		}
		return err
	}
	lock, err := vfs.AcquireLock(filepath.Join(f.Path, folderLock), false)
	if err == nil && f.owner != 0 {
		err = os.Chmod(f.Path, 0o711)
	}
	if err != nil {
		if lock != nil {
			lock.Release()
		}
		os.RemoveAll(f.Path)
		return err
	}
	f.lock.Release()
	f.lock = lock
	return nil
}

// try writes a slot file, and removes it.
func (f *Folder) try() error {
	s, err := f.Create(1)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := vfs.Guard(func() error { s.Bytes()[0] = 1; return nil }); err != nil {
		return fmt.Errorf("%s cannot be written, its disk may be full: %w", s.Path, err)
	}
	return nil
}

// sweep removes what fronts left that were killed: nobody has their folders locked. Process numbers would not tell: containers that share a
// folder of memory each have their own.
func sweep(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	for _, path := range old {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		lock, err := vfs.AcquireLock(filepath.Join(path, folderLock), true)
		if err == nil {
			lock.Release()
		} else if info, missing := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || missing != nil || time.Since(info.ModTime()) < time.Minute {
			continue // a front's, or one that is being made
		}
		os.RemoveAll(path) // of another user: it stays
	}
}

// NewFolder uses the user's folder. If that is empty, it makes one: in the folder in, or, if that is empty too, in the best place that there is. The store's
// volume is the last choice.
func NewFolder(users, in, store string) (*Folder, error) {
	if users == "" {
		return makeSlotFolder(in, store)
	}
	abs, err := filepath.Abs(users)
	f := &Folder{Path: abs}
	f.look()
	return f, err
}
