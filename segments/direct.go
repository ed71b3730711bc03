package segments

import (
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Direct is a segment's file, open for reads around the page cache ([vfs.DirectFile]). Its reads are bytes and no more: [Set.ReadPart]
// finds out what they are. Safe for concurrent use.
type Direct struct {
	vfs.DirectFile
	g *segment
}

// OpenDirect opens a segment for reads around the page cache, until Close. The file cannot be dropped meanwhile; what a lease keeps of it
// stays, too. Where the file system has no such reads, the error is [errors.ErrUnsupported].
func (s *Set) OpenDirect(id uint64) (*Direct, error) {
	g, err := s.files.segment(id)
	if err != nil {
		return nil, err
	}
	if _, err := g.pin(); err != nil {
		return nil, err
	}
	f, err := vfs.OpenDirect(s.files.o.FS, g.path)
	if err != nil {
		g.unpin()
		return nil, err
	}
	return &Direct{f, g}, nil
}

// Close lets go of the file. It is called once.
func (d *Direct) Close() error {
	defer d.g.unpin()
	return d.DirectFile.Close()
}

// ReadPart is [Set.Read] of a record of which somebody read a part. head are the record's first bytes, at least those before its first
// plane; part are its bytes from offset at on, of which planes are taken that lie in it as a whole ([Record.Plane]). Both may be the same
// memory, which must stay as it is until fn returns. Nothing is read from the file.
func (s *Set) ReadPart(loc Loc, head, part []byte, at int64, fn func(*Record) error) error {
	g, err := s.files.segment(loc.Segment)
	if err != nil {
		return err
	}
	if at < 0 || loc.Length < int64(len(head)) {
		return damage.New(g.path, loc.Offset, "part of a record", fmt.Sprintf("within its %d bytes", loc.Length), fmt.Sprintf("%d bytes, and from %d on", len(head), at))
	}
	r := recordPool.Get().(*Record)
	defer func() {
		*r = Record{}
		recordPool.Put(r)
	}()
	return Callers(func() error {
		if err := g.view(head, loc, r); err != nil {
			return err
		}
		r.b, r.part = part, uint64(at)
		return fn(r)
	})
}

// Prepare opens and maps those segments that are not, several at once: each costs some reads of the disk, one after the other. What fails
// is left to whoever reads there.
func (s *Set) Prepare(ids []uint64) {
	const atOnce = 8
	var wait sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, id := range ids {
		g, err := s.files.segment(id)
		if err != nil || g.isMapped() {
			continue
		}
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			if _, err := g.pin(); err == nil {
				g.unpin()
			}
		})
	}
	wait.Wait()
}

func (g *segment) isMapped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m != nil
}

// Missing returns how many bytes at loc are not in memory, as [vfs.Missing] does. Where the segment cannot be opened, known is false, too.
func (s *Set) Missing(loc Loc) (bytes int64, known bool) {
	s.files.mapped(loc, func(m vfs.Mapping) { bytes, known = vfs.Missing(m, loc.Offset, loc.Length) })
	return bytes, known
}

// Resident reports whether two pages of a record are in memory, one behind its beginning and one before its end, which may have been read
// without the rest. Where the system does not say, they are not.
func (s *Set) Resident(loc Loc) (yes bool) {
	s.files.mapped(loc, func(m vfs.Mapping) {
		in := func(off int64) bool { yes, _ := vfs.Resident(m, loc.Offset+off); return yes }
		yes = in(loc.Length*3/8) && in(loc.Length*7/8)
	})
	return yes
}
