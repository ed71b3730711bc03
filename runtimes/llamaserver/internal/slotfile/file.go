package slotfile

import (
	"os"
	"sync"
	"time"

	"github.com/edsrzf/mmap-go"
)

// File is a slot file of a [Folder], with its contents in memory.
type File struct {
	Name   string // as the server knows it
	Path   string
	file   *os.File
	linked bool // the path is a link to memory of this process
	Size   int
	mem    mmap.MMap // of size bytes, or more: what was there before the file became shorter
}

// resize gives the file another length. What Bytes returned before is invalid.
func (s *File) resize(size int64) error {
	if int64(s.Size) != size {
		if err := s.file.Truncate(size); err != nil {
			return err
		}
	}
	return s.Remap()
}

// Remap maps the file as the server has written it. What Bytes returned before is invalid.
func (s *File) Remap() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.Size = int(info.Size())
	if s.Size <= len(s.mem) {
		return nil
	}
	if err := s.unmap(); err != nil {
		return err
	}
	s.mem, err = mmap.MapRegion(s.file, s.Size, mmap.RDWR, 0, 0)
	return err
}

func (s *File) unmap() error {
	if s.mem == nil {
		return nil
	}
	m := s.mem
	s.mem = nil
	return m.Unmap()
}

// Bytes returns the contents. They are valid until the file is mapped again or given back.
func (s *File) Bytes() []byte { return s.mem[:s.Size] }

// Close removes the file.
func (s *File) Close() {
	s.unmap()
	if s.file != nil {
		s.file.Close()
	}
	os.Remove(s.Path)
}

// spareFile keeps the last slot file for the next one: to get new memory from the system takes longer than to fill it with rows and have
// the server read them. Safe for concurrent use.
type spareFile struct {
	mu     sync.Mutex
	file   *File
	late   *time.Timer
	closed bool
}

// What is kept, and for how long.
const (
	spareBytes = 256 << 20
	spareTime  = time.Minute
)

// take gives the spare file with another size, or nil. Files that the server is to write get new memory: it would drop the old one.
func (p *spareFile) take(size int64) *File {
	if size == 0 {
		return nil
	}
	p.mu.Lock()
	s := p.file
	p.file = nil
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	if _, err := os.Lstat(s.Path); err != nil || s.resize(size) != nil { // somebody has cleaned up, or a mapped file keeps its size here
		s.Close()
		return nil
	}
	return s
}

// keep takes a file that nobody reads or writes any more, and closes the smaller of two.
func (p *spareFile) keep(s *File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || s.Size == 0 || s.Size > spareBytes || p.file != nil && p.file.Size >= s.Size {
		s.Close()
		return
	}
	if p.file != nil {
		p.file.Close()
	}
	p.file = s
	if p.late == nil {
		p.late = time.AfterFunc(spareTime, p.empty)
	} else {
		p.late.Reset(spareTime)
	}
}

// empty closes what is kept.
func (p *spareFile) empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// drop closes what is kept, and has nothing kept any more.
func (p *spareFile) drop() {
	p.mu.Lock()
	p.closed = true
	if p.late != nil {
		p.late.Stop()
	}
	p.mu.Unlock()
	p.empty()
}
