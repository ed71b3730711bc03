package segments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Sync makes everything durable that was appended before the call: the files, and the folder if files were made. Full
// segments are sealed on the way. A failed fsync makes this and all later writing calls fail with the same error.
func (s *Set) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.files.writable(); err != nil {
		return err
	}
	return s.files.syncLocked()
}

// syncLocked cuts full segments behind their last records, and syncs.
func (f *files) syncLocked() error {
	f.mu.Lock()
	filling := f.filling
	f.filling = nil
	f.mu.Unlock()
	var later []*segment
	for _, g := range filling {
		if !g.seal() {
			later = append(later, g)
		}
	}
	f.mu.Lock()
	f.filling = append(f.filling, later...)
	f.mu.Unlock()
	return f.flush()
}

// flush syncs the files that were written since the last time, and the folder.
func (f *files) flush() error {
	f.mu.Lock()
	dirty, newName := f.dirty, f.newName
	f.dirty, f.newName = map[*segment]struct{}{}, false
	f.mu.Unlock()
	err := eachAtOnce(dirty, (*segment).sync)
	if err == nil && newName {
		err = f.syncFolder()
	}
	if err != nil {
		f.mu.Lock() // unless an fsync has failed, the next Sync does the rest
		maps.Copy(f.dirty, dirty)
		f.newName = f.newName || newName
		f.mu.Unlock()
		return err
	}
	return f.poison.Err() // another sync of these files or the folder, in Reclaim, may have failed meanwhile
}

// syncers is how many segments are synced at a time: each waits for the disk, and has its file open meanwhile.
const syncers = 8

// WriteBack gives the disk what was appended before the call, ahead of a Sync (vfs.WriteBack). Its failure is that of a Sync.
func (s *Set) WriteBack() error {
	if err := s.files.writable(); err != nil {
		return err
	}
	s.files.mu.RLock()
	dirty := maps.Clone(s.files.dirty)
	s.files.mu.RUnlock()
	return eachAtOnce(dirty, (*segment).writeBack)
}

// writeBack holds the lock of who syncs: an error is told once, and must be known before somebody else's fsync is taken for one that succeeded.
func (g *segment) writeBack() error {
	g.fsync.Lock()
	defer g.fsync.Unlock()
	g.mu.Lock()
	if g.gone || !g.dirty {
		g.mu.Unlock()
		return nil
	}
	if err := g.openFileLocked(); err != nil {
		g.mu.Unlock()
		if errors.Is(err, ErrMissing) {
			return nil
		}
		return err
	}
	f := g.f
	g.pins++
	g.mu.Unlock()
	defer g.unpinFile()
	if err := vfs.WriteBack(f); err != nil {
		return g.files.setPoison(err)
	}
	return nil
}

// eachAtOnce does something with segments, and returns the first error that it meets.
func eachAtOnce(all map[*segment]struct{}, do func(*segment) error) error {
	next, failed := make(chan *segment, len(all)), make(chan error, len(all))
	for g := range all {
		next <- g
	}
	close(next)
	doSome := func() {
		for g := range next {
			if err := do(g); err != nil {
				failed <- err
				return
			}
		}
	}
	var others sync.WaitGroup
	for range min(syncers, len(all)) - 1 {
		others.Go(doSome)
	}
	doSome()
	others.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// Left has the next Sync make a segment durable that an earlier process wrote and may not have synced.
func (s *Set) Left(id uint64) {
	if g, err := s.files.segment(id); err == nil && !s.files.o.ReadOnly {
		g.mu.Lock()
		g.left = true
		g.mu.Unlock()
		s.files.noteDirty(g)
	}
}

// sync makes what was written before the call durable. A failure poisons the set.
func (g *segment) sync() error {
	g.fsync.Lock()
	defer g.fsync.Unlock()
	g.mu.Lock()
	if g.gone || !g.dirty && !g.left {
		g.mu.Unlock()
		return nil
	}
	if err := g.openFileLocked(); err != nil { // one that an earlier process left, and nobody has open, or that was closed for want of handles
		g.mu.Unlock()
		if errors.Is(err, ErrMissing) {
			return nil
		}
		return err
	}
	g.dirty, g.left, g.syncing = false, false, true // what is written from here on is marked again
	f := g.f
	g.pins++
	g.mu.Unlock()
	defer g.unpinFile()
	err := f.Sync()
	g.mu.Lock()
	g.syncing, g.stale = false, true // it may have taken a block for its extents
	g.mu.Unlock()
	if err != nil {
		return g.files.setPoison(err)
	}
	return nil
}

// seal cuts a segment that is full, or rests, behind its last record, unless records are still being written. One that cannot be cut just now keeps its
// planned size, and the next Sync tries again.
func (g *segment) seal() (done bool) {
	g.mu.Lock()
	if !g.full { // it rests, or is appended to again
		defer g.mu.Unlock()
		return g.restLocked()
	}
	busy, done, end := len(g.inflight) > 0, g.gone || g.sealed, g.end
	g.mu.Unlock()
	if done || busy || !g.wipe.TryLock() { // who walks over it, or destroys in it, may take long
		return done
	}
	defer g.changed()
	if err := g.cutLocked(end); err != nil {
		g.files.o.Logger.Info("a full segment keeps its planned size for now", "file", g.path, "err", err)
		return false
	}
	return true
}

// cut ends the file at end: the disk blocks behind it go back. The next Sync makes that durable, and until then the log says that
// the segment is being written to.
func (g *segment) cut(end int64) error {
	g.wipe.Lock()
	defer g.changed()
	return g.cutLocked(end)
}

// cutLocked is cut. The caller holds g.wipe.
func (g *segment) cutLocked(end int64) error {
	f, err := g.pinFile()
	if err != nil {
		return err
	}
	defer g.unpinFile()
	if err = f.Truncate(end); err != nil && g.unmap() {
		err = f.Truncate(end) // some systems do not cut a file that is mapped
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.size, g.end, g.full, g.sealed = end, end, true, true
	g.dirty = true // before Extents can take it for complete
	g.mu.Unlock()
	g.markDirty()
	return nil
}

// SealAll ends appending to every segment that this Set made, cuts the files behind their last records, and syncs: before files are given
// up for long, so that the blocks that were reserved ahead go back. Sealing happens by itself when a record does not fit.
func (s *Set) SealAll() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.files.writable(); err != nil {
		return err
	}
	s.appender.endWriters((*segment).fill)
	return s.files.syncLocked()
}

// Forget ends appending to a model's segments and lets go of the descriptor that its segments are begun with, when none of its records is
// under way: the model that has its fingerprint next may be another one, and writes to a segment of its own.
func (s *Set) Forget(fp kv.Fingerprint) {
	if w, ok := s.appender.writers.LoadAndDelete(fp); ok {
		w.(*writer).end((*segment).fill)
	}
	for _, g := range s.files.restingOnes() {
		g.mu.Lock()
		if err := g.knowLocked(); err != nil || g.headErr != nil || g.head.model == fp {
			g.finishLocked()
		}
		g.mu.Unlock()
	}
}

// SealRecovered seals a segment that an earlier process left: all behind end, which is what [Set.Scan] returned, is cut away, and the
// next Sync makes that durable. A valid record behind end is an error, and nothing is changed. A file whose header is damaged stays as it
// is, so that nothing hides the damage. If end is 0, nothing was ever there: a file without a sound header was never born, and is removed.
func (s *Set) SealRecovered(id uint64, end int64) error {
	g, err := s.files.segment(id)
	if err != nil {
		return err
	}
	found := false
	last, err := s.Scan(context.Background(), id, end, func(Loc, *Record) error { found = true; return nil }, nil)
	if err != nil {
		return err
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.files.writable(); err != nil {
		return err
	}
	g.mu.Lock()
	head, bad, size, strange := g.head, g.headErr, g.size, g.strange
	g.mu.Unlock()
	if bad == nil {
		end = max(end, head.end())
	}
	switch {
	case g.own:
		return fmt.Errorf("%s is appended to by this process, which seals it", g.path)
	case bad != nil && end == 0 && !found && !strange && !errors.Is(bad, ErrVersion):
		_, err := s.files.unlink(id)
		return err
	case bad != nil:
		s.files.o.Logger.Warn("a segment with a damaged header is not sealed", "file", g.path, "err", bad)
		return nil
	case size <= end: // sealed; or somebody cut away what the index, or the log, can name
		return nil
	case found:
		return fmt.Errorf("%s: cannot be sealed at %d: %w: it ends at %d", g.path, end, ErrBehind, last)
	case end%head.alignment != 0:
		return fmt.Errorf("%s: cannot be sealed at %d: expected a multiple of %d", g.path, end, head.alignment)
	}
	cerr := g.cut(end)
	if cerr == nil {
		return nil
	}
	s.files.o.Logger.Info("a segment that an earlier process left keeps its planned size", "file", g.path, "err", cerr)
	return g.clear(end, size)
}

// clear destroys what was torn in [from, to), in a file that cannot be cut.
func (g *segment) clear(from, to int64) error {
	g.wipe.Lock()
	defer g.changed()
	f, err := g.pinFile()
	if err != nil {
		return err
	}
	defer g.unpinFile()
	_, err = g.punch(f, from, to-from)
	g.markDirty()
	return err
}
