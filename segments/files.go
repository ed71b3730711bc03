package segments

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// files are the segments of a Set, and what they share.
type files struct {
	o            Options
	alignment    int64 // of new segments
	segmentBytes int64 // the planned size of a segment that holds more than one record

	extended atomic.Int64                    // disk blocks that were reserved since Open, and those for extents, in bytes
	solid    atomic.Bool                     // pages that were punched stayed allocated
	maps     atomic.Int64                    // how many segments are mapped
	poison   vfs.Poison                      // the error of an fsync that has failed
	folder   lock.Mutex[lock.SegmentsFolder] // one SyncDir at a time, until its failure is known
	queue    queue

	mu      lock.RWMutex[lock.Segments] // guards all below; held for map lookups only
	byID    map[uint64]*segment
	nextID  uint64
	dirty   map[*segment]struct{}
	filling []*segment // full, and not yet sealed; or resting, and perhaps not yet cut
	resting []*segment // that a model's next record may go to
	newName bool       // the folder has entries that no SyncDir has covered
	closed  bool
}

// open lists the folder.
func (f *files) open(o Options) error {
	f.o, f.alignment, f.nextID = o, minAlignment, 1
	f.byID, f.dirty = map[uint64]*segment{}, map[*segment]struct{}{}
	f.queue.leases.init()
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := parseSegmentName(name); ok && id != 0 {
			f.byID[id] = &segment{files: f, id: id, path: filepath.Join(o.Dir, name)}
			f.nextID = max(f.nextID, id+1)
		}
	}
	if !o.ReadOnly {
		f.newName = len(f.byID) > 0 // a process that was killed may have made some and synced no entry
		_, block, err := o.FS.Space(o.Dir)
		if err != nil {
			return err
		}
		for f.alignment < int64(block) && f.alignment < maxAlignment {
			f.alignment *= 2
		}
	}
	f.segmentBytes = alignUp(o.SegmentBytes, f.alignment)
	return nil
}

// close has every later call end with ErrClosed. It reports whether the first one did so before.
func (f *files) close() (before bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, f.closed = f.closed, true
	return before
}

// writable returns the error with which a call that writes must end.
func (f *files) writable() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return ErrClosed
	case f.o.ReadOnly:
		return ErrReadOnly
	}
	return f.poison.Err()
}

// setPoison ends all writing because of err, and returns what says so.
func (f *files) setPoison(err error) error {
	return f.poison.Set(err, func(err error) {
		if f.o.Poisoned != nil {
			f.o.Poisoned()
		}
		f.o.Logger.Error("an fsync failed: no more writes", "err", err)
	})
}

// poisoned is setPoison for a file whose handle was needed elsewhere.
func (f *files) poisoned(err error) { f.setPoison(err) }

// segment returns the segment with that id.
func (f *files) segment(id uint64) (*segment, error) {
	f.mu.RLock()
	g, closed := f.byID[id], f.closed
	f.mu.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if g == nil {
		return nil, f.missing(filepath.Join(f.o.Dir, segmentName(id)), nil)
	}
	return g, nil
}

// has reports whether a segment's file was there when it was last looked for.
func (f *files) has(id uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byID[id] != nil
}

// missing is the error for a segment without a file: damage, or what a process that writes has done since this one opened the store.
func (f *files) missing(path string, err error) error {
	why := ErrMissing
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if f.o.ReadOnly && f.o.Overtaken != nil && f.o.Overtaken() {
		return fmt.Errorf("%s: %w: %w", path, ErrDestroyed, why)
	}
	return damage.Wrap(path, 0, "segment", why)
}

// sorted returns all segments by id.
func (f *files) sorted() []*segment {
	f.mu.RLock()
	all := make([]*segment, 0, len(f.byID))
	for _, g := range f.byID {
		all = append(all, g)
	}
	f.mu.RUnlock()
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	return all
}

// each calls do with every segment, by id, one at a time under its lock.
func (f *files) each(do func(g *segment)) {
	for _, g := range f.sorted() {
		g.mu.Lock()
		do(g)
		g.mu.Unlock()
	}
}

// newID is the id of the next segment.
func (f *files) newID() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextID++
	return f.nextID - 1
}

// add takes in a segment whose file was made.
func (f *files) add(g *segment) {
	f.mu.Lock()
	f.byID[g.id] = g
	f.mu.Unlock()
	f.extended.Add(extentBlock)
}

// remove lets go of a segment whose file was unlinked.
func (f *files) remove(g *segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byID, g.id)
	delete(f.dirty, g)
	f.newName = true
	f.filling, f.resting = without(f.filling, g), without(f.resting, g)
}

// noteDirty has the next Sync sync a segment.
func (f *files) noteDirty(g *segment) {
	f.mu.Lock()
	f.dirty[g] = struct{}{}
	f.mu.Unlock()
}

// noteUncut has the next Sync cut a segment behind its last record.
func (f *files) noteUncut(g *segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.filling, g) {
		f.filling = append(f.filling, g)
	}
}

// noteResting lets the next record of the segment's model go there.
func (f *files) noteResting(g *segment) {
	f.mu.Lock()
	f.resting = append(f.resting, g)
	f.mu.Unlock()
}

// noteAwake ends noteResting.
func (f *files) noteAwake(g *segment) {
	f.mu.Lock()
	f.resting = without(f.resting, g)
	f.mu.Unlock()
}

func (f *files) restingOnes() []*segment {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.resting)
}

func without(list []*segment, g *segment) []*segment {
	return slices.DeleteFunc(list, func(x *segment) bool { return x == g })
}

// syncFolder makes names durable. A failure poisons the set, unless the folder could not even be opened.
func (f *files) syncFolder() error {
	f.folder.Lock()
	defer f.folder.Unlock()
	err := f.o.FS.SyncDir(f.o.Dir)
	if err != nil && !errors.Is(err, vfs.ErrNotSynced) {
		return f.setPoison(err)
	}
	return err
}

// mapped calls do with the map of loc's segment, if loc lies inside.
func (f *files) mapped(loc Loc, do func(m vfs.Mapping)) {
	g, err := f.segment(loc.Segment)
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
