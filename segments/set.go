package segments

import (
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Set is all segments of a store. Safe for concurrent use.
type Set struct {
	files    files
	appender appender

	reclaiming lock.Mutex[lock.Reclaim]      // one Reclaim at a time
	syncing    lock.Mutex[lock.SegmentsSync] // one Sync, SealAll or Close at a time
}

// Open lists the folder; files are opened and mapped when they are needed. Nothing is appended to the files that are there, but to those that
// [Set.Resume] is called for.
func Open(o Options) (*Set, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Set{}
	if err := s.files.open(o.withDefaults()); err != nil {
		return nil, err
	}
	s.appender.files = &s.files
	return s, nil
}

// MaxID is the highest id that was ever seen or used; 0 if none.
func (s *Set) MaxID() uint64 {
	s.files.mu.RLock()
	defer s.files.mu.RUnlock()
	return s.files.nextID - 1
}

// RaiseID makes every new segment's id larger than id. Open knows only the files that are there: the newest may have been
// unlinked, or lost with the power, while the log or the index still names it. That id must not come back, so whoever
// opens a Set raises it to the highest one that it knows of.
func (s *Set) RaiseID(id uint64) {
	s.files.mu.Lock()
	s.files.nextID = max(s.files.nextID, id+1)
	s.files.mu.Unlock()
}

// Err is the error of the fsync that failed, after which nothing more is written; nil while all is well.
func (s *Set) Err() error { return s.files.poison.Err() }

// Descriptor returns the model descriptor in a segment's header, whose fingerprint was checked.
func (s *Set) Descriptor(id uint64) (kv.Descriptor, error) {
	g, err := s.files.segment(id)
	if err != nil {
		return kv.Descriptor{}, err
	}
	return g.descriptor()
}

// ReadAhead asks the system to read a record's bytes soon. A hint: errors are ignored.
func (s *Set) ReadAhead(loc Loc) {
	s.files.mapped(loc, func(m vfs.Mapping) { m.WillNeed(loc.Offset, loc.Length) })
}

// Trim gives back every map and file handle that is not in use at this moment; they come back when needed. It returns how
// many segments still hold one: those that are being read, and those with writes that were not synced.
func (s *Set) Trim() (held int) {
	for _, g := range s.files.sorted() {
		if !g.drop() {
			held++
		}
	}
	return held
}
