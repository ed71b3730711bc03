package repair

import (
	"io"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// salvageFS is what Repair reads a damaged store through. It writes nothing. Files that are no use are hidden from those who
// list their folder, and bytes that the disk cannot read are zeros, which no checksum takes for anything.
type salvageFS struct {
	vfs.FS
	hidden     map[string]bool // paths
	unreadable func(file string, off int64, err error)
}

func (s *salvageFS) Create(string) (vfs.File, error) { return nil, folder.ErrReadOnly }
func (s *salvageFS) Rename(string, string) error     { return folder.ErrReadOnly }
func (s *salvageFS) Remove(string) error             { return folder.ErrReadOnly }
func (s *salvageFS) Mkdir(string) error              { return folder.ErrReadOnly }
func (s *salvageFS) SyncDir(string) error            { return folder.ErrReadOnly }

func (s *salvageFS) List(dir string) ([]string, error) {
	if s.hidden[dir] {
		return nil, nil
	}
	names, err := s.FS.List(dir)
	return slices.DeleteFunc(names, func(n string) bool { return s.hidden[filepath.Join(dir, n)] }), err
}

func (s *salvageFS) Open(name string, readOnly bool) (vfs.File, error) {
	if !readOnly {
		return nil, folder.ErrReadOnly
	}
	f, err := s.FS.Open(name, true)
	if err != nil {
		return nil, err
	}
	return &salvageFile{f, name, s}, nil
}

type salvageFile struct {
	vfs.File
	name string
	s    *salvageFS
}

func (f *salvageFile) WriteAt([]byte, int64) (int, error)       { return 0, folder.ErrReadOnly }
func (f *salvageFile) Sync() error                              { return folder.ErrReadOnly }
func (f *salvageFile) Truncate(int64) error                     { return folder.ErrReadOnly }
func (f *salvageFile) Allocate(int64, int64) error              { return folder.ErrReadOnly }
func (f *salvageFile) Punch(off, n int64) (freed bool, _ error) { return false, folder.ErrReadOnly }

// ReadAt reads what the disk cannot read as zeros, block by block.
func (f *salvageFile) ReadAt(b []byte, off int64) (n int, err error) {
	if n, err = f.File.ReadAt(b, off); err == nil || err == io.EOF {
		return n, err
	}
	const block = 4096
	for n < len(b) {
		end := min(len(b), n+block-int(off+int64(n))%block)
		k, err := f.File.ReadAt(b[n:end], off+int64(n))
		switch {
		case err == io.EOF && k < end-n:
			return n + k, err
		case err != nil && err != io.EOF:
			f.s.unreadable(f.name, off+int64(n), err)
			clear(b[n:end])
		}
		n = end
	}
	return n, nil
}

// onlyFS shows one file of a folder.
type onlyFS struct {
	vfs.FS
	name string
}

func (o onlyFS) List(string) ([]string, error) { return []string{o.name}, nil }
