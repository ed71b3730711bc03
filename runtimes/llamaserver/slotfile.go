package llamaserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// slotFolder is the folder through which slots go: --slot-save-path. On Linux its files are links to memory of this process, so
// that rows never reach a disk; elsewhere they are files that only this user can read. Safe for concurrent use.
type slotFolder struct {
	path  string
	lock  *vfs.Lock // of a folder that was made here: it is removed at the end
	next  atomic.Uint64
	spare spareFile
}

// newSlotFolder uses a folder of the user's, or, where that is empty, makes one.
func newSlotFolder(users string) (*slotFolder, error) {
	if users != "" {
		abs, err := filepath.Abs(users)
		return &slotFolder{path: abs}, err
	}
	sweep(memoryFolder())
	dir, err := os.MkdirTemp(memoryFolder(), folderPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	lock, err := vfs.AcquireLock(filepath.Join(dir, folderLock), false)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &slotFolder{path: dir, lock: lock}, nil
}

const (
	folderPrefix = "dormouse-slots-"
	folderLock   = "LOCK"
)

// sweep removes what fronts left that were killed: nobody has their folders locked. Process numbers would not tell: containers that share a
// folder of memory each have their own.
func sweep(dir string) {
	if dir == "" {
		dir = os.TempDir()
	}
	old, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	for _, path := range old {
		lock, err := vfs.AcquireLock(filepath.Join(path, folderLock), true)
		if err == nil {
			lock.Release()
		} else if info, missing := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || missing != nil || time.Since(info.ModTime()) < time.Minute {
			continue // a front's, or one that is being made
		}
		os.RemoveAll(path) // of another user: it stays
	}
}

func (f *slotFolder) close() error {
	f.spare.drop()
	if f.lock == nil {
		return nil
	}
	return errors.Join(f.lock.Release(), os.RemoveAll(f.path))
}

// create makes a file of a size: written through bytes, or by the server. What is in it is anything.
func (f *slotFolder) create(size int64) (*slotFile, error) {
	if s := f.spare.take(size); s != nil {
		return s, nil
	}
	name := "dormouse-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(f.next.Add(1), 10)
	s := &slotFile{name: name, path: filepath.Join(f.path, name)}
	var err error
	if s.file, err = makeSlotFile(s.path); err != nil {
		return nil, fmt.Errorf("slot file %s: %w", s.path, err)
	}
	if err := s.resize(size); err != nil {
		s.close()
		return nil, fmt.Errorf("slot file %s of %d bytes: %w", s.path, size, err)
	}
	return s, nil
}

// done is said of a file that the server has written or read to its end. One that it may still be at is closed instead.
func (f *slotFolder) done(s *slotFile) { f.spare.keep(s) }
