package slotfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Folder is the folder through which slots go: the server's --slot-save-path. On Linux its files are links to memory of this process, so rows never
// reach a disk. Elsewhere, and where the server cannot follow such links, they are files that only the server's user can read. Safe for concurrent use.
type Folder struct {
	Path   string
	memory bool // what lies in it is in memory
	next   atomic.Uint64
	spare  spareFile

	mu    sync.Mutex
	lock  *vfs.Lock // of a folder that was made here: it is removed at the end
	none  error     // why the server has no such folder: nothing can be kept
	links bool      // its files are links to memory of this process
	owner int       // whose files are, where they are no links: this user's number, 0 for this process's own
}

// look finds out what kind of folder it is.
func (f *Folder) look() {
	f.memory = inMemory(f.Path)
	f.links = linksWork()
}

func (f *Folder) Close() error {
	f.spare.drop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	return errors.Join(f.lock.Release(), os.RemoveAll(f.Path))
}

// Create makes a file of a size, for us to fill through Bytes, or, of size 0, for the server to write. Its contents are undefined.
func (f *Folder) Create(size int64) (*File, error) {
	if s := f.spare.take(size); s != nil {
		return s, nil
	}
	name := "dormouse-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(f.next.Add(1), 10)
	s := &File{Name: name, Path: filepath.Join(f.Path, name)}
	err := f.open(s)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.remake(); err == nil {
			err = f.open(s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("slot file %s: %w", s.Path, err)
	}
	if err := s.resize(size); err != nil {
		s.Close()
		return nil, fmt.Errorf("slot file %s of %d bytes: %w", s.Path, size, err)
	}
	return s, nil
}

// open makes the file: a link to memory, or, where links cannot be made, a file of its own.
func (f *Folder) open(s *File) (err error) {
	f.mu.Lock()
	links, owner := f.links, f.owner
	f.mu.Unlock()
	if links {
		if s.file, err = linkToMemory(s.Path); err == nil {
			s.linked = true
			return nil
		}
	}
	if s.file, err = os.OpenFile(s.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	if links { // a file system without links
		f.mu.Lock()
		f.links = false
		f.mu.Unlock()
	}
	if owner != 0 {
		if err = s.file.Chown(owner, -1); err != nil {
			s.Close()
		}
	}
	return err
}

// Plain makes files that belong to a user from now on, instead of links. In a folder that was made here, that user may open them, but cannot make,
// remove or list files: with a link of its own it could have this process write elsewhere. back undoes it.
func (f *Folder) Plain(owner int) (back func(), err error) {
	f.mu.Lock()
	if owner != 0 && f.lock != nil {
		if err := os.Chmod(f.Path, 0o711); err != nil {
			f.mu.Unlock()
			return nil, err
		}
	}
	links, before := f.links, f.owner
	f.links, f.owner = false, owner
	f.mu.Unlock()
	f.DropSpare()
	return func() {
		f.mu.Lock()
		f.links, f.owner = links, before
		f.mu.Unlock()
	}, nil
}

// Without notes why the server has no such folder.
func (f *Folder) Without(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.none = why
}

// Missing returns why the server has no such folder; nil: it has one.
func (f *Folder) Missing() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.none
}

// String says in words where slot files are.
func (f *Folder) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.none != nil:
		return f.none.Error()
	case f.links:
		return "in memory of this process, with links to it in " + f.Path
	case f.memory:
		return "files in " + f.Path + ", which is in memory"
	}
	return "files in " + f.Path + ", which is on a disk: what slots hold is written there, and removed"
}

// OnDisk reports whether what slots hold reaches a disk.
func (f *Folder) OnDisk() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.links && !f.memory
}

// Done takes back a file that the server has written or read to its end, and keeps its memory for the next one. A file that the server may still
// use is closed instead.
func (f *Folder) Done(s *File) { f.spare.keep(s) }

// DropSpare gives back the memory that is kept for the next slot file.
func (f *Folder) DropSpare() { f.spare.empty() }
