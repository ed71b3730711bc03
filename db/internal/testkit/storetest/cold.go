package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Cold is the machine's disk, of whose segments missing says which pages are not in memory, wherever they are; nil says that none is. What
// is missing can be read around the page cache on any file system.
func Cold(missing func(name string, page int64) bool) *ColdDisk {
	if missing == nil {
		missing = func(string, int64) bool { return true }
	}
	return &ColdDisk{Disk: Over(vfs.OS), missing: missing}
}

// ColdDisk is what [Cold] returns.
type ColdDisk struct {
	*Disk
	missing func(name string, page int64) bool
	denied  atomic.Bool
	spoil   atomic.Pointer[func(b []byte)]
}

// Spoil has fn change what is read around the page cache. Nil: nothing does.
func (d *ColdDisk) Spoil(fn func(b []byte)) { d.spoil.Store(&fn) }

// Deny has the disk refuse, or allow again, to open files for reads around the page cache.
func (d *ColdDisk) Deny(yes bool) { d.denied.Store(yes) }

func (d *ColdDisk) Create(name string) (vfs.File, error) { return d.cold(d.Disk.Create(name)) }
func (d *ColdDisk) Open(name string, readOnly bool) (vfs.File, error) {
	return d.cold(d.Disk.Open(name, readOnly))
}

func (d *ColdDisk) cold(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &coldFile{f.(*file), d}, nil
}

type coldFile struct {
	*file
	disk *ColdDisk
}

func (f *coldFile) Map(size int64) (vfs.Mapping, error) {
	m, err := f.file.Map(size)
	if err != nil {
		return nil, err
	}
	return &coldMap{m, f}, nil
}

type coldMap struct {
	vfs.Mapping
	f *coldFile
}

func (m *coldMap) Resident(off int64) (yes, known bool) {
	return !m.f.disk.missing(m.f.Name(), off/4096), true
}

func (m *coldMap) WillNeed(off, n int64) {
	m.f.call("willneed", off, n)
	m.Mapping.WillNeed(off, n)
}

// OpenDirect implements what [vfs.OpenDirect] looks for.
func (d *Disk) OpenDirect(name string) (vfs.DirectFile, error) {
	if err := d.call(Call{Kind: "opendirect", Name: name}); err != nil {
		return nil, err
	}
	f, err := vfs.OpenDirect(d.disk, name)
	if err != nil {
		return nil, err
	}
	return &directFile{f, d, name, nil}, nil
}

// OpenDirect is an ordinary open.
func (d *ColdDisk) OpenDirect(name string) (vfs.DirectFile, error) {
	if d.denied.Load() {
		return nil, errors.ErrUnsupported
	}
	if err := d.call(Call{Kind: "opendirect", Name: name}); err != nil {
		return nil, err
	}
	f, err := d.disk.Open(name, true)
	if err != nil {
		return nil, err
	}
	return &directFile{f, d.Disk, name, &d.spoil}, nil
}

type directFile struct {
	vfs.DirectFile
	d     *Disk
	name  string
	spoil *atomic.Pointer[func(b []byte)] // nil: nothing does
}

func (f *directFile) ReadAt(b []byte, off int64) (int, error) {
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); (uintptr(off)|uintptr(len(b))|at)%vfs.DirectAlign != 0 {
		return 0, fmt.Errorf("%s: %d bytes at %d into memory at %#x are not aligned", f.name, len(b), off, at)
	}
	n, err := some(f.d.call(Call{Kind: "readdirect", Name: f.name, Off: off, N: int64(len(b))}), b, off, f.DirectFile.ReadAt)
	if f.spoil != nil {
		if fn := f.spoil.Load(); fn != nil && *fn != nil {
			(*fn)(b[:n])
		}
	}
	return n, err
}

func (f *directFile) Close() error {
	f.d.call(Call{Kind: "closedirect", Name: f.name})
	return f.DirectFile.Close()
}
