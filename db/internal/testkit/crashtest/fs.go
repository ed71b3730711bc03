package crashtest

import (
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// NoHoles is a file system that cannot punch holes: what is punched reads as zeros and stays allocated.
type NoHoles struct{ vfs.FS }

type noHolesFile struct{ vfs.File }

func (f NoHoles) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return noHolesFile{file}, err
}

func (f NoHoles) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil {
		return nil, err
	}
	return noHolesFile{file}, nil
}

func (f noHolesFile) Punch(off, n int64) (bool, error) {
	_, err := f.WriteAt(make([]byte, n), off)
	return false, err
}

// Coarse is a file system on a disk that is given out in larger blocks than most.
type Coarse struct{ vfs.FS }

func (c Coarse) Space(dir string) (free uint64, blockBytes int, err error) {
	free, _, err = c.FS.Space(dir)
	return free, 16 << 10, err
}

// Extents is a file system that takes one more block for each segment, for the list of its extents, when it writes it out for the second time:
// behind the header. It does so when the file is synced, or in Writeback, as ext4 may.
type Extents struct {
	vfs.FS
	mu      sync.Mutex
	dirty   map[string]bool
	written map[string]int // how often
}

// NewExtents is fs with such blocks.
func NewExtents(fs vfs.FS) *Extents {
	return &Extents{FS: fs, dirty: map[string]bool{}, written: map[string]int{}}
}

// Writeback writes out all that is dirty.
func (x *Extents) Writeback() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range x.dirty {
		x.written[name]++
	}
	clear(x.dirty)
}

// Create implements [vfs.FS], as the others do.
func (x *Extents) Create(name string) (vfs.File, error) {
	f, err := x.FS.Create(name)
	return x.file(f, name, err)
}

func (x *Extents) Open(name string, readOnly bool) (vfs.File, error) {
	f, err := x.FS.Open(name, readOnly)
	return x.file(f, name, err)
}

func (x *Extents) file(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".seg") {
		return f, err
	}
	return &extentsFile{f, x, name}, nil
}

func (x *Extents) Remove(name string) error {
	x.mu.Lock()
	delete(x.dirty, name)
	delete(x.written, name)
	x.mu.Unlock()
	return x.FS.Remove(name)
}

func (x *Extents) Stat(name string) (vfs.Info, error) {
	info, err := x.FS.Stat(name)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.written[name] >= 2 {
		info.Allocated += 4096
	}
	return info, err
}

type extentsFile struct {
	vfs.File
	x    *Extents
	name string
}

func (f *extentsFile) WriteAt(b []byte, off int64) (int, error) {
	f.x.mu.Lock()
	f.x.dirty[f.name] = true
	f.x.mu.Unlock()
	return f.File.WriteAt(b, off)
}

func (f *extentsFile) Sync() error {
	f.x.mu.Lock()
	if f.x.dirty[f.name] {
		delete(f.x.dirty, f.name)
		f.x.written[f.name]++
	}
	f.x.mu.Unlock()
	return f.File.Sync()
}
