package llamaserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"
)

// slotFolder is the folder through which slots go: --slot-save-path. On Linux its files are links to memory of this process, so
// that rows never reach a disk; elsewhere they are files that only this user can read. Safe for concurrent use.
type slotFolder struct {
	path string
	own  bool // made here: removed at the end
	next atomic.Uint64
}

// newSlotFolder uses a folder of the user's, or, where that is empty, makes one.
func newSlotFolder(users string) (*slotFolder, error) {
	if users != "" {
		abs, err := filepath.Abs(users)
		return &slotFolder{path: abs}, err
	}
	sweep(memoryFolder())
	dir, err := os.MkdirTemp(memoryFolder(), folderPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	return &slotFolder{path: dir, own: true}, nil
}

const folderPrefix = "dormouse-slots-"

// sweep removes what fronts left that were killed: their folders say their process.
func sweep(dir string) {
	if dir == "" {
		dir = os.TempDir()
	}
	old, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	for _, path := range old {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), folderPrefix), "-")
		if n, err := strconv.Atoi(pid); err != nil || n == os.Getpid() || alive(n) {
			continue
		}
		os.RemoveAll(path) // of another user: it stays
	}
}

func (f *slotFolder) close() error {
	if !f.own {
		return nil
	}
	return os.RemoveAll(f.path)
}

// slotFile is a file of the folder, with memory for its contents.
type slotFile struct {
	name string // as the server knows it
	path string
	file *os.File
	mem  mmap.MMap
}

// create makes a file of a size. It is written through bytes, or by the server.
func (f *slotFolder) create(size int64) (*slotFile, error) {
	name := "dormouse-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(f.next.Add(1), 10)
	s := &slotFile{name: name, path: filepath.Join(f.path, name)}
	var err error
	if s.file, err = makeSlotFile(s.path); err != nil {
		return nil, fmt.Errorf("slot file %s: %w", s.path, err)
	}
	if size > 0 {
		if err = s.file.Truncate(size); err == nil {
			err = s.remap()
		}
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("slot file %s of %d bytes: %w", s.path, size, err)
	}
	return s, nil
}

// remap maps the file as it is now. What bytes gave before is invalid.
func (s *slotFile) remap() (err error) {
	if err := s.unmap(); err != nil {
		return err
	}
	info, err := s.file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	s.mem, err = mmap.MapRegion(s.file, int(info.Size()), mmap.RDWR, 0, 0)
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

// bytes is the contents, valid until close or remap.
func (s *slotFile) bytes() []byte { return s.mem }

// close removes the file.
func (s *slotFile) close() {
	s.unmap()
	if s.file != nil {
		s.file.Close()
	}
	os.Remove(s.path)
}
