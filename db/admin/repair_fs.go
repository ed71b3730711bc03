package admin

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// salvageFS is what Repair reads a damaged store through. It writes nothing. Folders that cannot be listed are empty, segments and log files
// that cannot be opened are not there, and bytes that the disk cannot read are zeros, which no checksum takes for anything.
type salvageFS struct {
	vfs.FS
	bad    map[string]*damage.Error // by path: why a folder, or a file, is of no use; nil if it is
	blocks map[string]bool          // that could not be read, by file and offset
	damage []*damage.Error          // all of it, as it was met
}

func newSalvageFS(below vfs.FS) *salvageFS {
	return &salvageFS{FS: below, bad: map[string]*damage.Error{}, blocks: map[string]bool{}}
}

func (s *salvageFS) Create(string) (vfs.File, error) { return nil, folder.ErrReadOnly }
func (s *salvageFS) Rename(string, string) error     { return folder.ErrReadOnly }
func (s *salvageFS) Remove(string) error             { return folder.ErrReadOnly }
func (s *salvageFS) Mkdir(string) error              { return folder.ErrReadOnly }
func (s *salvageFS) SyncDir(string) error            { return folder.ErrReadOnly }

func (s *salvageFS) List(dir string) ([]string, error) {
	names, err := s.FS.List(dir)
	if s.unusable(dir, "folder", func(string) error { return err }) {
		return nil, nil
	}
	return slices.DeleteFunc(names, func(n string) bool {
		path := filepath.Join(dir, n)
		return strings.HasSuffix(n, ".seg") && s.unusable(path, "segment", s.mappable) ||
			strings.HasSuffix(n, ".wal") && s.unusable(path, "log file", s.readable)
	}), nil
}

// unusable reports whether look had an error the first time, which is damage.
func (s *salvageFS) unusable(path, what string, look func(path string) error) bool {
	bad, known := s.bad[path]
	if !known {
		if err := look(path); err != nil {
			bad = damage.Wrap(path, 0, what, err)
			s.damage = append(s.damage, bad)
		}
		s.bad[path] = bad
	}
	return bad != nil
}

func (s *salvageFS) readable(path string) error {
	f, err := s.FS.Open(path, true)
	if err != nil {
		return err
	}
	return f.Close()
}

func (s *salvageFS) mappable(path string) error {
	f, err := s.FS.Open(path, true)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size == 0 {
		return err
	}
	m, err := f.Map(info.Size)
	if err != nil {
		return err
	}
	return m.Close()
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
			f.unreadable(off+int64(n), err)
			clear(b[n:end])
		}
		n = end
	}
	return n, nil
}

func (f *salvageFile) unreadable(off int64, err error) {
	at := fmt.Sprint(f.name, ":", off)
	if !f.s.blocks[at] {
		f.s.blocks[at] = true
		f.s.damage = append(f.s.damage, damage.Wrap(f.name, off, "block", err))
	}
}
