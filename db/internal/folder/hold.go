package folder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// HeldIndex is a file system in which index.db is a copy of what it was at one moment between two checkpoints.
type HeldIndex struct {
	vfs.FS
	path string
	copy *memoryFile // nil: it was not there
}

// HoldIndex copies index.db, if it is there, into memory. A writer that has the store open may be writing to it: pages that the last
// commit names are not touched before the next one is whole, so a copy between two looks at the same meta pages is whole.
func HoldIndex(fsys vfs.FS, path string) (vfs.FS, error) {
	for until := time.Now().Add(ReaderWait); ; time.Sleep(5 * time.Millisecond) {
		f, whole, err := copyIndex(fsys, path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // and is not there for who looks again, though a writer may have made it since
			return HeldIndex{FS: fsys, path: path}, nil
		case errors.Is(err, vfs.ErrNotRegular):
			return fsys, nil // whoever needs it says so
		case err != nil:
			return nil, err
		case whole:
			return HeldIndex{FS: fsys, path: path, copy: f}, nil
		case time.Now().After(until):
			return nil, fmt.Errorf("%s: it changed all the time for %v: %w", path, ReaderWait, vfs.ErrLocked)
		}
	}
}

// copyIndex copies index.db, and reports whether its meta pages stayed what they were meanwhile.
func copyIndex(fsys vfs.FS, path string) (_ *memoryFile, whole bool, err error) {
	f, err := fsys.Open(path, true)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	metas, err := beginning(f, index.MetaBytes)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat() // before the metas it could be shorter than they say
	if err != nil {
		return nil, false, err
	}
	b, err := beginning(f, info.Size)
	if err != nil {
		return nil, false, err
	}
	again, err := beginning(f, index.MetaBytes)
	whole = bytes.HasPrefix(b, metas) && bytes.Equal(metas, again)
	return &memoryFile{Reader: bytes.NewReader(b), name: path, info: info, b: b}, whole, err
}

// beginning reads the first n bytes of a file, or all if it has fewer.
func beginning(f vfs.File, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(io.NewSectionReader(f, 0, n), b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:got], err
}

// Changed is when the file was last written to that was copied; zero if there was none.
func (h HeldIndex) Changed() time.Time {
	if h.copy == nil {
		return time.Time{}
	}
	return h.copy.info.Changed
}

// Moved reports whether the file was written to since.
func (h HeldIndex) Moved() bool {
	info, err := h.FS.Stat(h.path)
	if h.copy == nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return err != nil || !info.Changed.Equal(h.copy.info.Changed)
}

// Same reports whether the file is what it was when it was copied, as its meta pages say: each commit changes them.
func (h HeldIndex) Same() (bool, error) {
	if h.Moved() || h.copy == nil {
		return !h.Moved(), nil
	}
	f, err := h.FS.Open(h.path, true)
	if err != nil {
		return false, err
	}
	defer f.Close()
	metas, err := beginning(f, index.MetaBytes)
	return bytes.HasPrefix(h.copy.b, metas) && len(metas) == min(len(h.copy.b), index.MetaBytes), err
}

func (h HeldIndex) missing(do string) error {
	return &fs.PathError{Op: do, Path: h.path, Err: fs.ErrNotExist}
}

// Open opens a file of the store.
func (h HeldIndex) Open(name string, readOnly bool) (vfs.File, error) {
	switch {
	case name != h.path || !readOnly:
		return h.FS.Open(name, readOnly)
	case h.copy == nil:
		return nil, h.missing("open")
	}
	return h.copy, nil
}

// Stat describes a file of the store.
func (h HeldIndex) Stat(name string) (vfs.Info, error) {
	switch {
	case name != h.path:
		return h.FS.Stat(name)
	case h.copy == nil:
		return vfs.Info{}, h.missing("stat")
	}
	return h.copy.info, nil
}

// memoryFile is a file's bytes as they once were.
type memoryFile struct {
	*bytes.Reader
	name string
	info vfs.Info
	b    []byte
}

func (f *memoryFile) Name() string                       { return f.name }
func (f *memoryFile) Close() error                       { return nil }
func (f *memoryFile) Stat() (vfs.Info, error)            { return f.info, nil }
func (f *memoryFile) WriteAt([]byte, int64) (int, error) { return 0, ErrReadOnly }
func (f *memoryFile) Sync() error                        { return ErrReadOnly }
func (f *memoryFile) Truncate(int64) error               { return ErrReadOnly }
func (f *memoryFile) Allocate(int64, int64) error        { return ErrReadOnly }
func (f *memoryFile) Punch(off, n int64) (bool, error)   { return false, ErrReadOnly }
func (f *memoryFile) Map(size int64) (vfs.Mapping, error) {
	return memoryMap{f.b[:min(size, int64(len(f.b)))]}, nil
}

type memoryMap struct{ b []byte }

func (m memoryMap) Bytes() []byte       { return m.b }
func (memoryMap) WillNeed(off, n int64) {}
func (memoryMap) DontNeed(off, n int64) {}
func (memoryMap) Close() error          { return nil }
