package llamaserver

import (
	"os"
	"sync"
	"time"

	"github.com/edsrzf/mmap-go"
)

// slotFile is a file of a [slotFolder], with memory for its contents.
type slotFile struct {
	name   string // as the server knows it
	path   string
	file   *os.File
	linked bool // the path is a link to memory of this process
	size   int
	mem    mmap.MMap // of size bytes, or more: what was there before the file became shorter
}

// resize makes the file so long. What bytes gave before is invalid.
func (s *slotFile) resize(size int64) error {
	if int64(s.size) != size {
		if err := s.file.Truncate(size); err != nil {
			return err
		}
	}
	return s.remap()
}

// remap maps the file as it is now. What bytes gave before is invalid.
func (s *slotFile) remap() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.size = int(info.Size())
	if s.size <= len(s.mem) {
		return nil
	}
	if err := s.unmap(); err != nil {
		return err
	}
	s.mem, err = mmap.MapRegion(s.file, s.size, mmap.RDWR, 0, 0)
	return err
}

func (s *slotFile) unmap() error {
	if s.mem == nil {
		return nil
	}
	m := s.mem
	s.mem = nil
	return m.Unmap()
}

// bytes is the contents, valid until the file is resized, mapped again or given back.
func (s *slotFile) bytes() []byte { return s.mem[:s.size] }

// close removes the file.
func (s *slotFile) close() {
	s.unmap()
	if s.file != nil {
		s.file.Close()
	}
	os.Remove(s.path)
}

// spareFile keeps the last slot file for the next one: to get new memory from the system takes longer than to fill it with rows and have
// the server read them. Safe for concurrent use.
type spareFile struct {
	mu     sync.Mutex
	file   *slotFile
	late   *time.Timer
	closed bool
}

// What is kept, and for how long.
const (
	spareBytes = 256 << 20
	spareTime  = time.Minute
)

// take gives the spare file with another size, or nil. Files that the server is to write get new memory: it would drop the old one.
func (p *spareFile) take(size int64) *slotFile {
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
	if _, err := os.Lstat(s.path); err != nil || s.resize(size) != nil { // somebody has cleaned up, or a mapped file keeps its size here
		s.close()
		return nil
	}
	return s
}

// keep takes a file that nobody reads or writes any more, and closes the smaller of two.
func (p *spareFile) keep(s *slotFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || s.size == 0 || s.size > spareBytes || p.file != nil && p.file.size >= s.size {
		s.close()
		return
	}
	if p.file != nil {
		p.file.close()
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
		p.file.close()
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
