package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"sync"

	mmap "github.com/edsrzf/mmap-go"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|openFlags, 0o600)
	if err != nil {
		return nil, mapError(err)
	}
	return &osFile{File: f}, nil
}

func (osFS) Open(name string, readOnly bool) (File, error) {
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	if err := checkRegular(name); err != nil {
		return nil, err
	}
	f, err := openFile(name, flag|openFlags, 0)
	if err != nil {
		return nil, mapError(err)
	}
	return &osFile{File: f}, nil
}

// openFile is [os.OpenFile], where the process has a handle left.
func openFile(name string, flag int, mode fs.FileMode) (f *os.File, err error) {
	err = WithHandle(func() error {
		f, err = os.OpenFile(name, flag, mode)
		return err
	})
	return f, err
}

// checkRegular refuses what is no regular file, before it is opened: that may have an effect, or wait.
func checkRegular(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w but %s", ErrNotRegular, info.Mode().Type())}
	}
	return nil
}

func (osFS) Rename(old, new string) error { return mapError(os.Rename(old, new)) }

func (osFS) Remove(name string) error {
	if info, err := os.Lstat(name); err == nil && info.IsDir() {
		return &fs.PathError{Op: "remove", Path: name, Err: fmt.Errorf("%w but %s", ErrNotRegular, info.Mode().Type())}
	}
	return os.Remove(name)
}

func (osFS) Mkdir(name string) error {
	err := os.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if info, serr := os.Lstat(name); serr == nil && info.IsDir() { // a link to one is none
			return nil
		}
	}
	return mapError(err)
}

func (osFS) List(dir string) ([]string, error) {
	var entries []fs.DirEntry
	err := WithHandle(func() (err error) {
		entries, err = os.ReadDir(dir)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !SystemName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, err
}

func (osFS) Stat(name string) (Info, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(info, allocatedAt(name, info)), nil
}

func infoOf(info os.FileInfo, allocated int64) Info {
	return Info{
		Size: info.Size(), Allocated: allocated, Dir: info.IsDir(), Regular: info.Mode().IsRegular(), Link: info.Mode()&fs.ModeSymlink != 0,
		Changed: info.ModTime(),
	}
}

type osFile struct{ *os.File }

func (f *osFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, mapError(err)
}

func (f *osFile) Stat() (Info, error) {
	info, err := f.File.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(info, allocatedIn(f.File, info)), nil
}

func (f *osFile) Sync() error {
	return wrap("sync", f.Name(), datasync(f.File))
}

func (f *osFile) Truncate(size int64) error { return mapError(f.File.Truncate(size)) }

func (f *osFile) Allocate(off, n int64) error {
	if n <= 0 {
		return nil
	}
	return wrap("reserve space in", f.Name(), allocate(f.File, off, n))
}

func (f *osFile) Punch(off, n int64) (bool, error) {
	if n <= 0 {
		return true, nil
	}
	freed, err := punch(f.File, off, n)
	return freed, wrap("punch", f.Name(), err)
}

func (f *osFile) Map(size int64) (Mapping, error) {
	if size <= 0 || size != int64(int(size)) {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: fmt.Errorf("size %d", size)}
	}
	m, err := mmap.MapRegion(f.File, int(size), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, wrap("map", f.Name(), err)
	}
	return &osMapping{m: m}, nil
}

type osMapping struct {
	m    mmap.MMap
	once sync.Once
}

func (m *osMapping) Bytes() []byte         { return m.m }
func (m *osMapping) WillNeed(off, n int64) { advise(m.m, off, n, true) }
func (m *osMapping) DontNeed(off, n int64) { advise(m.m, off, n, false) }

func (m *osMapping) Close() (err error) {
	m.once.Do(func() { err = m.m.Unmap() })
	return err
}

// clamp cuts [off, off+n) to whole pages inside b.
func clamp(b []byte, off, n int64) []byte {
	page := int64(os.Getpagesize())
	from := max(off, 0) / page * page
	to := min(off+n, int64(len(b)))
	if from >= to {
		return nil
	}
	return b[from:to]
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return mapError(&fs.PathError{Op: op, Path: name, Err: err})
}

// mapError marks "disk full" and "quota exceeded" as ErrNoSpace, and keeps the path.
func mapError(err error) error {
	if err != nil && isNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
