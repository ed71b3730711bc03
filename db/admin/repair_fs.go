package admin

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// salvageFS is what Repair reads a damaged store through. It writes nothing. Folders that cannot be listed are empty, segments and log
// files that cannot be opened are not there. Bytes that the disk cannot read are zeros, which no checksum accepts.
type salvageFS struct {
	vfs.FS
	files   damagedFiles
	useless map[string]bool // by path: whether a folder, a segment or a log file cannot be read at all
}

func newSalvageFS(below vfs.FS, files damagedFiles) *salvageFS {
	return &salvageFS{FS: below, files: files, useless: map[string]bool{}}
}

func (s *salvageFS) Create(string) (vfs.File, error) { return nil, folder.ErrReadOnly }
func (s *salvageFS) Rename(string, string) error     { return folder.ErrReadOnly }
func (s *salvageFS) Remove(string) error             { return folder.ErrReadOnly }
func (s *salvageFS) Mkdir(string) error              { return folder.ErrReadOnly }

func (s *salvageFS) List(dir string) ([]string, error) {
	names, err := s.FS.List(dir)
	if s.cannot(dir, "folder", func(string) error { return err }) {
		return nil, nil
	}
	return slices.DeleteFunc(names, func(n string) bool {
		path := filepath.Join(dir, n)
		return strings.HasSuffix(n, ".seg") && s.cannot(path, "segment", s.mappable) ||
			strings.HasSuffix(n, ".wal") && s.cannot(path, "log file", s.readable)
	}), nil
}

// cannot reports whether look failed the first time, which is damage.
func (s *salvageFS) cannot(path, what string, look func(path string) error) bool {
	useless, known := s.useless[path]
	if !known {
		err := look(path)
		if useless = err != nil; useless {
			s.files.damaged(path, 0, damage.Wrap(path, 0, what, err))
		}
		s.useless[path] = useless
	}
	return useless
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
			f.s.files.damaged(f.name, off+int64(n), damage.Wrap(f.name, off+int64(n), "block", err))
			clear(b[n:end])
		}
		n = end
	}
	return n, nil
}
