package segments

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sort"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Options say where a store's segments are and how new ones are made.
type Options struct {
	FS   vfs.FS // nil: the operating system
	Dir  string // the folder of the segment files; it must exist unless ReadOnly
	UUID kv.UUID
	Seed kv.Seed

	SegmentBytes int64 // size of a new segment; 0: 64 MiB. A larger record gets a segment of its own
	AllocateStep int64 // disk blocks are reserved in steps of so many bytes; 0: 4 MiB
	// Ahead is asked before disk blocks are reserved beyond the end of a record, and told when that is done. Nil: always.
	// It must not call the Set's methods that write.
	Ahead func(bytes int64) (done func(), ok bool)
	// Poisoned, if not nil, is called when an fsync has failed; it must not call the Set's methods.
	Poisoned func()
	ReadOnly bool // nothing is ever written
	// Overtaken is asked by a reader where a segment is missing: another process may have unlinked it since. Nil: none does.
	Overtaken func() bool
	Logger    *slog.Logger // nil: nothing is logged
}

// Validate returns an error that names the option at fault.
func (o *Options) Validate() error {
	switch {
	case o.Dir == "":
		return errors.New("segments: option Dir is empty")
	case o.SegmentBytes < 0 || o.SegmentBytes > maxRecordBytes:
		return fmt.Errorf("segments: option SegmentBytes is %d, expected 0 to %d", o.SegmentBytes, int64(maxRecordBytes))
	case o.AllocateStep < 0 || o.AllocateStep > maxRecordBytes:
		return fmt.Errorf("segments: option AllocateStep is %d, expected 0 to %d", o.AllocateStep, int64(maxRecordBytes))
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.AllocateStep == 0 {
		o.AllocateStep = 4 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Set is all segments of a store. Safe for concurrent use.
type Set struct {
	o         Options
	alignment int64 // of new segments

	extended   atomic.Int64                    // disk blocks that were reserved since Open, and those for extents, in bytes
	solid      atomic.Bool                     // pages that were punched stayed allocated
	poison     vfs.Poison                      // the error of an fsync that has failed
	reclaiming lock.Mutex[lock.Reclaim]        // one Reclaim at a time
	syncing    lock.Mutex[lock.SegmentsSync]   // one Sync, SealAll or Close at a time
	maps       atomic.Int64                    // how many segments are mapped
	folder     lock.Mutex[lock.SegmentsFolder] // one SyncDir at a time, until its failure is known

	mu      lock.RWMutex[lock.Segments] // guards all below; held for map lookups only
	segs    map[uint64]*segment
	writers map[kv.Fingerprint]*writer
	nextID  uint64
	dirty   map[*segment]struct{}
	filling []*segment // full, and not yet sealed; or resting, and perhaps not yet cut
	resting []*segment // that a model's next record may go to
	newName bool       // the folder has entries that no SyncDir has covered
	closed  bool

	leases leases
	queue  queue
}

// Open lists the folder; files are opened and mapped when they are needed. Nothing is appended to the files that are there, but to those that
// [Set.Resume] is called for.
func Open(o Options) (*Set, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Set{
		o: o, alignment: minAlignment, nextID: 1,
		segs:    map[uint64]*segment{},
		writers: map[kv.Fingerprint]*writer{},
		dirty:   map[*segment]struct{}{},
	}
	s.leases.seeking.init()
	s.leases.pinned.init()
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if id, ok := parseSegmentName(name); ok && id != 0 {
			s.segs[id] = &segment{set: s, id: id, path: filepath.Join(o.Dir, name)}
			s.nextID = max(s.nextID, id+1)
		}
	}
	if !o.ReadOnly {
		s.newName = len(s.segs) > 0 // a process that was killed may have made some and synced no entry
		_, block, err := o.FS.Space(o.Dir)
		if err != nil {
			return nil, err
		}
		for s.alignment < int64(block) && s.alignment < maxAlignment {
			s.alignment *= 2
		}
	}
	return s, nil
}

// MaxID is the highest id that was ever seen or used; 0 if none.
func (s *Set) MaxID() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nextID - 1
}

// RaiseID makes every new segment's id larger than id. Open knows only the files that are there: the newest may have been
// unlinked, or lost with the power, while the log or the index still names it. That id must not come back, so whoever
// opens a Set raises it to the highest one that it knows of.
func (s *Set) RaiseID(id uint64) {
	s.mu.Lock()
	s.nextID = max(s.nextID, id+1)
	s.mu.Unlock()
}

// Err is the error of the fsync that failed, after which nothing more is written; nil while all is well.
func (s *Set) Err() error { return s.poison.Err() }

// writable returns the error with which a call that writes must end.
func (s *Set) writable() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.o.ReadOnly:
		return ErrReadOnly
	}
	return s.poison.Err()
}

// setPoison ends all writing because of err, and returns what says so.
func (s *Set) setPoison(err error) error {
	return s.poison.Set(err, func(err error) {
		if s.o.Poisoned != nil {
			s.o.Poisoned()
		}
		s.o.Logger.Error("an fsync failed: no more writes", "err", err)
	})
}

// poisoned is setPoison for a file whose handle was needed elsewhere.
func (s *Set) poisoned(err error) { s.setPoison(err) }

func (s *Set) noteDirty(g *segment) {
	s.mu.Lock()
	s.dirty[g] = struct{}{}
	s.mu.Unlock()
}

// segment returns the segment with that id.
func (s *Set) segment(id uint64) (*segment, error) {
	s.mu.RLock()
	g, closed := s.segs[id], s.closed
	s.mu.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if g == nil {
		return nil, s.missing(filepath.Join(s.o.Dir, segmentName(id)), nil)
	}
	return g, nil
}

// missing is the error for a segment without a file: damage, or what a process that writes has done since this one opened the store.
func (s *Set) missing(path string, err error) error {
	why := ErrMissing
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if s.o.ReadOnly && s.o.Overtaken != nil && s.o.Overtaken() {
		return fmt.Errorf("%s: %w: %w", path, ErrDestroyed, why)
	}
	return damage.Wrap(path, 0, "segment", why)
}

// sorted returns all segments by id.
func (s *Set) sorted() []*segment {
	s.mu.RLock()
	all := make([]*segment, 0, len(s.segs))
	for _, g := range s.segs {
		all = append(all, g)
	}
	s.mu.RUnlock()
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	return all
}

// each calls do with every segment, by id, one at a time under its lock.
func (s *Set) each(do func(g *segment)) {
	for _, g := range s.sorted() {
		g.mu.Lock()
		do(g)
		g.mu.Unlock()
	}
}

// Descriptor returns the model descriptor in a segment's header, whose fingerprint was checked.
func (s *Set) Descriptor(id uint64) (kv.Descriptor, error) {
	g, err := s.segment(id)
	if err != nil {
		return kv.Descriptor{}, err
	}
	return g.descriptor()
}

// ReadAhead asks the system to read a record's bytes soon. A hint: errors are ignored.
func (s *Set) ReadAhead(loc Loc) {
	s.mapped(loc, func(m vfs.Mapping) { m.WillNeed(loc.Offset, loc.Length) })
}

// mapped calls do with the map of loc's segment, if loc lies inside.
func (s *Set) mapped(loc Loc, do func(m vfs.Mapping)) {
	g, err := s.segment(loc.Segment)
	if err != nil {
		return
	}
	if _, err := g.pin(); err != nil {
		return
	}
	defer g.unpin()
	g.mu.Lock()
	m, size := g.m, g.size
	g.mu.Unlock()
	if m != nil && loc.Offset >= 0 && loc.Length > 0 && loc.Offset < size && loc.Length <= size-loc.Offset {
		do(m)
	}
}

// Trim gives back every map and file handle that is not in use at this moment; they come back when needed. It returns how
// many segments still hold one: those that are being read, and those with writes that were not synced.
func (s *Set) Trim() (held int) {
	for _, g := range s.sorted() {
		if !g.drop() {
			held++
		}
	}
	return held
}
