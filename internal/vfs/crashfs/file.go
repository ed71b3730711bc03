package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// file is an open file.
type file struct {
	d        *Disk
	n        *node
	name     string
	readOnly bool
	real     vfs.File // of Options.Outside
	closed   bool     // guarded by Disk.mu
	plugged  int      // volume.plugged when it was opened
}

func (f *file) Name() string { return f.name }

// call is Disk.call for an open file; a change needs one that is open for writing.
func (f *file) call(kind string, n int, do func() error) error {
	return f.d.call(kind, f.name, n, func(string) error {
		switch {
		case f.closed:
			return fs.ErrClosed
		case kind != "close" && f.plugged != f.d.volume.plugged:
			return errGone
		case changing[kind] && kind != "sync" && (f.readOnly || f.real != nil):
			return fs.ErrPermission
		}
		return do()
	})
}

// Close lets go of the file even where it fails, as the operating system does.
func (f *file) Close() error {
	done := false
	err := f.d.call("close", f.name, 0, func(string) error { done = true; return f.close() })
	if !done {
		f.d.mu.Lock()
		defer f.d.mu.Unlock()
		f.close()
	}
	return err
}

func (f *file) close() error {
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	if f.real != nil {
		return f.real.Close()
	}
	return nil
}

func (f *file) Stat() (info vfs.Info, err error) {
	err = f.call("stat", 0, func() (err error) {
		if f.real != nil {
			info, err = f.real.Stat()
			return err
		}
		info = f.n.stat()
		return nil
	})
	return info, err
}

func (f *file) ReadAt(b []byte, off int64) (n int, err error) {
	read := func(b []byte) error {
		if f.real != nil {
			n, err = f.real.ReadAt(b, off)
			return err
		}
		if off < f.n.size() {
			n = copy(b, f.n.data[off:])
		}
		if n < len(b) {
			return io.EOF
		}
		return nil
	}
	err = f.call("read", len(b), func() error { return read(b) })
	var short *Short
	if errors.As(err, &short) {
		f.d.mu.Lock()
		defer f.d.mu.Unlock()
		read(b[:min(short.Bytes, len(b))])
		return n, err
	}
	if errors.Is(err, io.EOF) {
		err = io.EOF // as it is
	}
	return n, err
}

func (f *file) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.call("write", len(b), func() error { n, err = f.write(b, off); return err })
	var short *Short
	if errors.As(err, &short) {
		f.d.mu.Lock()
		defer f.d.mu.Unlock()
		n, _ = f.write(b[:min(short.Bytes, len(b))], off)
	}
	return n, err
}

// write is WriteAt. The caller holds mu.
func (f *file) write(b []byte, off int64) (int, error) {
	if f.d.crashed || f.d.volume.gone || f.closed || f.readOnly || len(b) == 0 {
		return 0, nil
	}
	n := f.n
	var err error
	for len(b) > 0 && !f.d.fits(n.missing(off, off+int64(len(b)))) {
		cut := (off + int64(len(b)) - 1) / pageBytes * pageBytes // where the last page begins
		b, err = b[:max(0, cut-off)], errFull
	}
	if len(b) == 0 {
		return 0, err
	}
	end := off + int64(len(b))
	if end > n.size() {
		n.resize(end)
	}
	n.allocate(off, end)
	n.change(off, end, func(mem []byte) { copy(mem, b) })
	return len(b), err
}

func (f *file) Sync() error {
	done := false
	err := f.call("sync", 0, func() error {
		done = true
		if f.real == nil {
			f.n.sync()
		}
		return nil
	})
	if err != nil && !done {
		f.d.mu.Lock()
		defer f.d.mu.Unlock()
		if !f.d.crashed && !f.closed && f.real == nil {
			f.n.syncFailed()
		}
	}
	return err
}

func (f *file) Truncate(size int64) error {
	return f.call("truncate", 0, func() error {
		if size < 0 {
			return fs.ErrInvalid
		}
		f.n.resize(size)
		return nil
	})
}

func (f *file) Allocate(off, n int64) error {
	return f.call("allocate", int(n), func() error {
		if n <= 0 {
			return nil
		}
		if !f.d.fits(f.n.missing(off, off+n)) {
			return errFull
		}
		if off+n > f.n.size() {
			f.n.resize(off + n)
		}
		f.n.allocate(off, off+n)
		return nil
	})
}

func (f *file) Punch(off, n int64) (freed bool, err error) {
	err = f.call("punch", int(n), func() error {
		if n > 0 {
			f.n.zero(off, off+n)
			f.n.free(off, off+n)
		}
		freed = true
		return nil
	})
	return freed && err == nil, err
}

// mapping is a map of a file in memory: the file's own memory, or a copy that every write goes to as well.
type mapping struct {
	d    *Disk
	n    *node
	mem  []byte
	once sync.Once
}

func (f *file) Map(size int64) (m vfs.Mapping, err error) {
	err = f.call("map", 0, func() error {
		if size <= 0 || size != int64(int(size)) {
			return fmt.Errorf("size %d", size)
		}
		if f.real != nil {
			m, err = f.real.Map(size)
			return err
		}
		f.n.reserve(size)
		x := &mapping{d: f.d, n: f.n, mem: f.n.data[:size:size]}
		f.n.maps = append(f.n.maps, x)
		m = x
		return nil
	})
	if err != nil {
		if m != nil {
			m.Close()
		}
		return nil, err
	}
	return m, nil
}

func (m *mapping) Bytes() []byte         { return m.mem }
func (m *mapping) WillNeed(off, n int64) {}
func (m *mapping) DontNeed(off, n int64) {}

func (m *mapping) Close() error {
	m.once.Do(func() {
		m.d.mu.Lock()
		defer m.d.mu.Unlock()
		m.n.maps = slices.DeleteFunc(m.n.maps, func(x *mapping) bool { return x == m })
	})
	return nil
}
