package segments

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

var recordPool = sync.Pool{New: func() any { return new(Record) }}

// Read finds the record at loc, checks its header, and calls fn with a view of it, on this goroutine and under fault
// protection; other goroutines that fn starts need a vfs.Guard of their own, and must end before fn does. The error
// is fn's own, or
//
//   - a *damage.Error: the header is broken or names another place, the file is too short, a page cannot be read
//     (vfs.ErrFault), the file is gone (ErrMissing);
//   - ErrDestroyed: the header is zeros;
//   - ErrMemory: fn met a fault elsewhere;
//   - the system's, when the file cannot be opened or mapped at the moment.
//
// A reader holds a [Lease], taken before it learned loc.
func (s *Set) Read(loc Loc, fn func(*Record) error) error {
	g, err := s.files.segment(loc.Segment)
	if err != nil {
		return err
	}
	b, err := g.pin()
	if err != nil {
		return err
	}
	defer g.unpin()
	if loc.Offset < minAlignment || loc.Length <= 0 || loc.Offset > int64(len(b)) || loc.Length > int64(len(b))-loc.Offset || loc.Tier != 0 {
		return g.inFile(damage.New("", loc.Offset, "place of a record", fmt.Sprintf("within the %d bytes of the file, on tier 0", len(b)), loc))
	}
	r := recordPool.Get().(*Record)
	defer func() {
		*r = Record{}
		recordPool.Put(r)
	}()
	err = vfs.Guard(func() error {
		if err := g.view(b[loc.Offset:loc.End()], loc, r); err != nil {
			return err
		}
		err := fn(r)
		if s.files.o.ReadOnly && isZero(b[loc.Offset:loc.Offset+recordHeaderBytes]) { // another process destroyed it meanwhile, header first
			return g.destroyed(loc)
		}
		return err
	})
	fault := faultIn(err)
	switch {
	case fault == nil || errors.Is(err, damage.ErrCorrupt):
		return err
	case fault.Within(b) || fault.Addr == 0: // it is not known where
		if errors.Is(err, ErrMemory) { // as somebody took it for whom fn had it read
			err = fault
		}
		return damage.Wrap(g.path, loc.Offset, "record", err)
	}
	return &memoryError{fault}
}

// faultIn is the fault that err tells of; nil if none.
func faultIn(err error) *vfs.Fault {
	if err == nil {
		return nil
	}
	var fault *vfs.Fault
	errors.As(err, &fault)
	return fault
}

// ErrMemory is returned where memory that the caller gave, for rows, say, cannot be read or written: it is the map of a file that somebody cut, or
// that has no room on the disk. What is stored is none the worse for it.
var ErrMemory = fmt.Errorf("%w: memory cannot be read or written", kv.ErrRows)

// Callers runs fn, which uses memory of the caller's and no map of ours. A fault is ErrMemory.
func Callers(fn func() error) error {
	err := vfs.Guard(fn)
	if fault := faultIn(err); fault != nil {
		return &memoryError{fault}
	}
	return err
}

// memoryError is ErrMemory, with the fault: whoever gave that memory may know it for a map of theirs.
type memoryError struct{ fault *vfs.Fault }

func (e *memoryError) Error() string {
	return fmt.Sprintf("%v at address %#x", ErrMemory, e.fault.Addr)
}
func (e *memoryError) Unwrap() []error { return []error{ErrMemory, e.fault} }

// view makes r the record at loc, of which b has all bytes, or the first.
func (g *segment) view(b []byte, loc Loc, r *Record) error {
	h, v, bad := decodeRecordHead(b, loc.Length, g.at(loc.Offset))
	switch {
	case v == isZero256:
		return g.destroyed(loc)
	case bad != nil:
		return g.inFile(bad)
	}
	// The alignment of a file whose header is damaged is not known: then the record's own place is proof enough.
	if model, alignment, ok := g.identity(); ok {
		if h.model != model {
			return damage.New(g.path, loc.Offset+48, "fingerprint of a record", model, h.model)
		}
		if want := alignUp(h.total, alignment); want != loc.Length {
			return damage.New(g.path, loc.Offset+120, "length of a record", loc.Length, want)
		}
	}
	n := min(h.total, int64(len(b)))
	*r = Record{h: h, head: b[:h.head:h.head], b: b[:n:n], loc: loc, file: g.path}
	return nil
}

// destroyed is the error for a header of zeros. The last page of a map reads as zeros behind the end of a file that
// somebody cut, so the file's size is asked for again.
func (g *segment) destroyed(loc Loc) error {
	if info, err := g.files.o.FS.Stat(g.path); err == nil && info.Size < loc.End() {
		return damage.New(g.path, loc.Offset, "segment", fmt.Sprintf("a file of at least %d bytes", loc.End()), info.Size)
	}
	return fmt.Errorf("%s: offset %d: %w", g.path, loc.Offset, ErrDestroyed)
}
