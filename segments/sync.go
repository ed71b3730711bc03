package segments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Sync makes everything durable that was appended before the call: the files, and the folder if files were made. Full
// segments are sealed on the way. A failed fsync makes this and all later writing calls fail with the same error.
func (s *Set) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	return s.syncLocked()
}

// syncLocked writes the footers of full segments, syncs, and only then cuts those files: a file that is shorter than
// planned always has its footer.
func (s *Set) syncLocked() error {
	s.mu.Lock()
	filling := s.filling
	s.filling = nil
	s.mu.Unlock()
	var footed []*segment
	for _, g := range filling {
		done, err := g.writeFooter()
		switch {
		case done:
			footed = append(footed, g)
		default:
			// The footer is a convenience: without it the file keeps its planned size, and a later Sync tries again.
			s.mu.Lock()
			s.filling = append(s.filling, g)
			s.mu.Unlock()
			if err != nil {
				s.o.Logger.Warn("sealing a segment failed", "file", g.path, "err", err)
			}
		}
	}
	if err := s.flush(); err != nil {
		s.mu.Lock()
		s.filling = append(s.filling, footed...) // to be cut, unless an fsync has failed
		s.mu.Unlock()
		return err
	}
	for _, g := range footed {
		g.cut()
	}
	return nil
}

// flush syncs the files that were written since the last time, and the folder.
func (s *Set) flush() error {
	s.mu.Lock()
	dirty, newName := s.dirty, s.newName
	s.dirty, s.newName = map[*segment]struct{}{}, false
	s.mu.Unlock()
	var err error
	for g := range dirty {
		if err = g.sync(); err != nil {
			break
		}
	}
	if err == nil && newName {
		err = s.syncFolder()
	}
	if err != nil {
		s.mu.Lock() // unless an fsync has failed, the next Sync does the rest
		maps.Copy(s.dirty, dirty)
		s.newName = s.newName || newName
		s.mu.Unlock()
		return err
	}
	return s.Err() // another sync of these files or the folder, in Reclaim, may have failed meanwhile
}

// syncFolder makes names durable. A failure poisons the set, unless the folder could not even be opened.
func (s *Set) syncFolder() error {
	s.folder.Lock()
	defer s.folder.Unlock()
	err := s.o.fs.SyncDir(s.o.Dir)
	if err != nil && !errors.Is(err, vfs.ErrNotSynced) {
		return s.setPoison(err)
	}
	return err
}

// Left has the next Sync make a segment durable that an earlier process wrote and may not have synced.
func (s *Set) Left(id uint64) {
	if g, err := s.segment(id); err == nil && !s.o.ReadOnly {
		g.mu.Lock()
		g.left = true
		g.mu.Unlock()
		s.noteDirty(g)
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
	if err := g.openFileLocked(); err != nil { // one that an earlier process left, and nobody has open
		g.mu.Unlock()
		if errors.Is(err, ErrMissing) {
			return nil
		}
		return err
	}
	g.dirty, g.left = false, false // what is written from here on is marked again
	f := g.f
	g.pins++
	g.mu.Unlock()
	defer g.unpinFile()
	err := f.Sync()
	if err != nil {
		return g.set.setPoison(err)
	}
	return nil
}

// writeFooter writes the footer of a full segment behind its last record. It is not done while records are being written.
func (g *segment) writeFooter() (done bool, err error) {
	g.mu.Lock()
	if g.gone || g.sealed {
		g.mu.Unlock()
		return true, nil
	}
	if len(g.inflight) > 0 {
		g.mu.Unlock()
		return false, nil
	}
	if err := g.openLocked(); err != nil {
		g.mu.Unlock()
		return false, err
	}
	slices.SortFunc(g.entries, func(a, b footerEntry) int { return cmp.Compare(a.offset, b.offset) })
	b := encodeFooter(g.at(g.end), g.entries)
	f, end, planned := g.f, g.end, g.head.planned
	g.pins++
	g.mu.Unlock()
	defer g.unpinFile()
	g.wipe.Lock() // to whoever walks over the file just now, half a footer is rubbish
	defer g.wipe.Unlock()

	n := int64(len(b))
	write := func() error {
		if err := f.Allocate(end, n); err != nil { // a write that makes the file longer takes more on some file systems, while it is open
			return err
		}
		_, err := f.WriteAt(b, end)
		return err
	}
	err = write()
	if errors.Is(err, vfs.ErrNoSpace) {
		// The blocks that were reserved and will never be needed may be just what is missing.
		if g.release(f, end, max(planned, end+n)) == nil {
			err = write()
		}
	}
	if err != nil {
		// Half a footer would only look like rubbish.
		return false, errors.Join(err, g.release(f, end, max(planned, end+n)))
	}
	g.mu.Lock()
	g.unpromiseLocked()
	g.footer, g.footerEnd, g.sealed, g.entries = end, end+n, true, nil
	g.mu.Unlock()
	g.markDirty()
	return true, nil
}

// unpromiseLocked ends what [Set.Footers] counts for g.
func (g *segment) unpromiseLocked() {
	if g.own && !g.sealed {
		g.set.begun.Add(-1)
		g.set.listed.Add(-int64(len(g.entries)))
	}
}

// release drops all blocks from end on; the file keeps its size. The caller holds wipe.
func (g *segment) release(f vfs.File, end, size int64) error {
	if freed, err := f.Punch(end, size-end); freed || err != nil {
		return err
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	return f.Truncate(size)
}

// cut shortens a sealed file to its footer's end. Where a mapped file cannot be cut it stays long: zeros follow.
func (g *segment) cut() {
	g.wipe.Lock()
	defer g.wipe.Unlock()
	f, err := g.pinFile()
	if err != nil {
		return
	}
	defer g.unpinFile()
	g.mu.Lock()
	end := g.footerEnd
	g.mu.Unlock()
	if err = f.Truncate(end); err != nil && g.unmap() {
		err = f.Truncate(end) // some systems do not cut a file that is mapped
	}
	if err != nil {
		g.mu.Lock()
		g.uncut = true
		g.mu.Unlock()
		g.set.o.Logger.Info("a sealed segment keeps its planned size for now", "file", g.path, "err", err)
		return
	}
	g.mu.Lock()
	g.size, g.stale, g.uncut = end, true, false
	g.mu.Unlock()
}

// Seal ends appending to a segment that this Set made, syncs, and cuts the file behind its footer. Sealing happens by
// itself when a record does not fit; Seal is for a model that will not be written for long. A segment that is sealed
// already, or that another Set made, is left as it is.
func (s *Set) Seal(id uint64) error {
	g, err := s.segment(id)
	if err != nil {
		return err
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	s.detach(g)
	s.fill(g)
	return s.syncLocked()
}

// Forget lets go of the descriptor that a model's segments are begun with, when none of them is appended to any more and none of its
// records is under way: the model that has its fingerprint next may be another one.
func (s *Set) Forget(fp kv.Fingerprint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writers, fp)
}

// SealAll seals every segment that is being appended to: before files are given up for long, so that the blocks that were
// reserved ahead go back.
func (s *Set) SealAll() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	for _, w := range s.allWriters() {
		w.mu.Lock()
		if w.active != nil {
			s.fill(w.active)
			w.active = nil
		}
		w.mu.Unlock()
	}
	return s.syncLocked()
}

// detach takes g away from its writer.
func (s *Set) detach(g *segment) {
	if !g.own {
		return
	}
	s.mu.RLock()
	w := s.writers[g.head.model]
	s.mu.RUnlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	if w.active == g {
		w.active = nil
	}
	w.mu.Unlock()
}

// SealRecovered seals a segment that an earlier process left without a footer. end is what [Set.Scan] returned: all
// behind it is cut away. A valid record behind end is an error, and nothing is changed. A file that was cut, or whose header
// is damaged, stays as it is, so that nothing hides the damage; one that never got as far as its header is removed.
func (s *Set) SealRecovered(id uint64, end int64) error {
	g, err := s.segment(id)
	if err != nil {
		return err
	}
	torn, err := g.tornFooter() // before the scan: holes of a tmpfs that are read through a map are holes no more
	if err != nil {
		return err
	}
	var entries []footerEntry
	last, err := s.Scan(context.Background(), id, 0, func(loc Loc, r *Record) error {
		entries = append(entries, footerEntry{key: r.Key(), seq: r.Seq(), offset: loc.Offset, length: loc.Length, group: r.Group()})
		return nil
	}, func(*damage.Error) {})
	if err != nil {
		return err
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if g.unborn() && len(entries) == 0 {
		_, err := s.unlink(id)
		return err
	}
	ready, err := g.recover(last, end, entries, torn)
	if err != nil || !ready {
		return err
	}
	// What was torn behind end, a footer too, must not show behind the footer, should a power cut undo the cutting of the file.
	f, err := g.pinFile()
	if err != nil {
		return err
	}
	g.mu.Lock()
	size := max(g.head.planned, g.size)
	g.mu.Unlock()
	g.wipe.Lock()
	_, err = f.Punch(end, size-end)
	g.markDirty()
	g.wipe.Unlock()
	g.unpinFile()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.filling = append(s.filling, g)
	s.mu.Unlock()
	return s.syncLocked()
}

// unborn reports whether the file's header was never written.
func (g *segment) unborn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.headErr != nil && errors.Is(g.headErr, ErrRemains)
}

// tornFooter reports whether a power cut may have taken a part of g's footer: one that ends at the size at which the file was
// created, or behind it, ended the file before it was synced. Any other one was synced before the file was cut.
func (g *segment) tornFooter() (torn bool, err error) {
	f, err := g.pinFile()
	if err != nil {
		return false, err
	}
	defer g.unpinFile()
	g.mu.Lock()
	footer, end, planned := g.footer, g.footerEnd, g.head.planned
	known := g.sealed && g.headErr == nil
	g.mu.Unlock()
	if !known || end < planned {
		return false, nil
	}
	b, bad, err := g.readFooter(f, footer, end)
	if err != nil || bad != nil {
		return bad != nil, err
	}
	_, _, bad = decodeFooter(b, g.at(footer))
	return bad != nil && !errors.Is(bad, ErrVersion), nil // another release's is whole
}

// recover makes g, which an earlier process left, ready to be sealed at end; last is where its last record ends, torn what
// tornFooter said.
func (g *segment) recover(last, end int64, entries []footerEntry, torn bool) (ready bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.own:
		return false, fmt.Errorf("%s was made by this process: Seal it", g.path)
	case g.sealed && !torn:
		return false, nil
	case g.headErr != nil || g.size < g.head.planned:
		g.set.o.Logger.Warn("a damaged segment is not sealed", "file", g.path, "size", g.size, "planned", g.head.planned, "err", g.headErr)
		return false, nil
	case last > end:
		return false, fmt.Errorf("%s: cannot be sealed at %d: %w: it ends at %d", g.path, end, ErrBehind, last)
	case end < g.head.end() || end%g.head.alignment != 0 || end > g.size:
		return false, fmt.Errorf("%s: cannot be sealed at %d: expected a multiple of %d from %d to %d", g.path, end, g.head.alignment, g.head.end(), g.size)
	}
	g.end, g.entries, g.full = end, entries, true
	g.footer, g.footerEnd, g.sealed = 0, 0, false
	return true, nil
}
