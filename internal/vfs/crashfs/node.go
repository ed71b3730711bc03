package crashfs

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// errFull is a full disk, as the operating system says it.
var errFull = syscall.ENOSPC

func isNoSpace(err error) bool { return errors.Is(err, errFull) }

// pageBytes is what a file's space is given out in, and what the cache writes back. sectorBytes is what a power cut keeps
// or drops; now and then it cuts one in two.
const (
	pageBytes   = 4096
	sectorBytes = 512
)

// node is a file or a directory, whatever its name. Its fields are guarded by Disk.mu.
type node struct {
	dir bool

	// Of a file of Options.Outside: what was found the last time, and the time before.
	outside   bool
	real      *os.File // open, to look at it again; nil: not yet
	now, was  []byte
	uncertain bool // now differs from was, and nothing else was changed since: a crash may have cut that commit short

	// Of a file in memory.
	data      []byte // what is read; behind its length the capacity holds zeros
	maps      []*mapping
	allocated []bool // by page
	blocks    int    // how many of them are

	sure          map[int64][]byte // durable pages; none is zeros
	sureSize      int64
	sureAllocated []bool
	pending       map[int64]*page // written since
	sizes         []int64         // that the file had since
}

// mapping is a map of a file in memory: the file's own memory, or a copy that every write goes to as well.
type mapping struct {
	mu   *sync.Mutex // the disk's
	n    *node
	mem  []byte
	once sync.Once
}

func (m *mapping) Bytes() []byte         { return m.mem }
func (m *mapping) WillNeed(off, n int64) {}
func (m *mapping) DontNeed(off, n int64) {}

func (m *mapping) Close() error {
	m.once.Do(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.n.maps = slices.DeleteFunc(m.n.maps, func(x *mapping) bool { return x == m })
	})
	return nil
}

// page holds what a page contained after each write since it was durable, the oldest first.
type page struct {
	versions [][]byte
	stuck    bool // a sync of it failed: later ones do not write it, until it is written to again
}

func newNode() *node { return &node{sure: map[int64][]byte{}, pending: map[int64]*page{}} }

func (n *node) size() int64 { return int64(len(n.data)) }

func (n *node) stat() vfs.Info {
	return vfs.Info{Size: n.size(), Allocated: int64(n.blocks) * pageBytes, Dir: n.dir, Regular: !n.dir}
}

// resize makes the file longer or shorter.
func (n *node) resize(size int64) {
	old := n.size()
	if size == old {
		return
	}
	n.sizes = append(n.sizes, size)
	if size < old {
		n.zero(size, old)
		n.free(roundUp(size), roundUp(old))
		n.data = n.data[:size]
		return
	}
	n.reserve(size)
	n.data = n.data[:size]
}

// reserve makes room for size bytes. Maps that are open keep the memory they have, and are written to beside it.
func (n *node) reserve(size int64) {
	if size <= int64(cap(n.data)) {
		return
	}
	data := make([]byte, len(n.data), max(size, 2*int64(cap(n.data))))
	copy(data, n.data)
	n.data = data
}

// change lets fn change the bytes [from, to) wherever they are, and notes the new versions of the pages.
func (n *node) change(from, to int64, fn func(mem []byte)) {
	if from >= to {
		return
	}
	fn(n.data[from:to])
	for _, m := range n.maps {
		if end := min(to, int64(len(m.mem))); from < end && &m.mem[0] != &n.data[0] {
			copy(m.mem[from:end], n.data[from:end])
		}
	}
	for p := from / pageBytes; p*pageBytes < to; p++ {
		now := make([]byte, pageBytes)
		copy(now, n.data[p*pageBytes:min((p+1)*pageBytes, n.size())])
		pg := n.pending[p]
		if pg == nil {
			pg = &page{}
			n.pending[p] = pg
		}
		pg.versions, pg.stuck = append(pg.versions, now), false
	}
}

// zero clears [from, to), but for pages that hold nothing anyway.
func (n *node) zero(from, to int64) {
	to = min(to, n.size())
	for p := from / pageBytes; p*pageBytes < to; p++ {
		if n.sure[p] == nil && n.pending[p] == nil {
			continue
		}
		n.change(max(from, p*pageBytes), min(to, (p+1)*pageBytes), func(mem []byte) { clear(mem) })
	}
}

// missing counts the pages of [from, to) that are not allocated, as far as there are that many.
func (n *node) missing(from, to int64) (pages int) {
	for p := from / pageBytes; p*pageBytes < to; p++ {
		if p >= int64(len(n.allocated)) || !n.allocated[p] {
			pages++
		}
	}
	return pages
}

func (n *node) allocate(from, to int64) {
	if need := int(roundUp(to) / pageBytes); need > len(n.allocated) {
		n.allocated = append(n.allocated, make([]bool, need-len(n.allocated))...)
	}
	for p := from / pageBytes; p*pageBytes < to; p++ {
		if !n.allocated[p] {
			n.allocated[p] = true
			n.blocks++
		}
	}
}

// free gives back the whole pages within [from, to).
func (n *node) free(from, to int64) {
	for p := roundUp(from) / pageBytes; (p+1)*pageBytes <= to && p < int64(len(n.allocated)); p++ {
		if n.allocated[p] {
			n.allocated[p] = false
			n.blocks--
		}
	}
}

func roundUp(n int64) int64 { return (n + pageBytes - 1) / pageBytes * pageBytes }

// sync makes the contents durable, but for pages of which a sync has failed.
func (n *node) sync() {
	for p, pg := range n.pending {
		if pg.stuck {
			continue
		}
		n.sure[p] = pg.versions[len(pg.versions)-1]
		delete(n.pending, p)
	}
	n.sureSize, n.sizes = n.size(), nil
	n.sureAllocated = append(n.sureAllocated[:0], n.allocated...)
}

// syncFailed is a sync that failed: the cache holds the pages for clean from now on, whether they were written or not.
func (n *node) syncFailed() {
	for _, pg := range n.pending {
		pg.stuck = true
	}
}
