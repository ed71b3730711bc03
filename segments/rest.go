package segments

import (
	"bytes"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A process that puts little must not leave a segment of its own. So what is not full when a store is closed rests: the file is cut behind its
// last record, and stays among those that the log says are being written to. Who opens the store next resumes it, and the model's next
// record goes there. It gets its planned size again only then.

// Rest ends appending to every segment, cuts the files behind their last records, and syncs: before files are given up for long, so that the
// blocks that were reserved ahead go back. What is not full rests.
func (s *Set) Rest() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.files.writable(); err != nil {
		return err
	}
	s.appender.endWriters(func(g *segment) {
		g.mu.Lock()
		g.resting = !g.full && !g.gone
		rests := g.resting
		g.mu.Unlock()
		s.files.noteUncut(g)
		if rests {
			s.files.noteResting(g)
		}
	})
	return s.files.syncLocked()
}

// Resume has the next records of its model go to a segment that an earlier process left, from end on, where it has room. The caller, who has
// just opened the Set, knows three things: no record ever lay at end or behind it; nothing but zeros lies there; every head of
// the log since the segment was made says that it is being written to. Otherwise an offset could be used twice, or a record that was never
// acknowledged be found. It reports whether the segment can be resumed, as far as that is known without reading its header.
func (s *Set) Resume(id uint64, end int64) bool {
	g, err := s.files.segment(id)
	if err != nil || s.files.o.ReadOnly {
		return false
	}
	info, err := s.files.o.FS.Stat(g.path)
	if err != nil || !info.Regular || info.Size < end || end < minAlignment {
		return false
	}
	g.space.Lock()
	defer g.space.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.own || g.gone || g.known && !g.resumableLocked(end) || !g.known && info.Size > end { // what is to be cut must have been looked over
		return false
	}
	g.own, g.resting, g.sealed = true, true, false
	g.size, g.end, g.allocated = info.Size, end, end
	s.files.noteResting(g)
	if info.Size > end {
		s.files.noteUncut(g)
	}
	return true
}

// EndsAt reports whether a segment's file ends there. It does not open it.
func (s *Set) EndsAt(id uint64, end int64) bool {
	g, err := s.files.segment(id)
	if err != nil {
		return false
	}
	info, err := s.files.o.FS.Stat(g.path)
	return err == nil && info.Regular && info.Size == end
}

// Uncut reports whether there are files that the next Sync cuts.
func (s *Set) Uncut() bool {
	s.files.mu.RLock()
	defer s.files.mu.RUnlock()
	return len(s.files.filling) > 0
}

// Finish sees to it that nothing is appended any more to a segment that rests. False: one is appended to just now.
func (s *Set) Finish(id uint64) bool {
	g, err := s.files.segment(id)
	return err != nil || g.finish() // or there is no such file
}

// finish ends a segment's rest, and reports whether nothing is appended any more.
func (g *segment) finish() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finishLocked()
	return !g.own || g.full
}

// finishLocked ends a segment's rest. g.mu is held.
func (g *segment) finishLocked() {
	if !g.resting {
		return
	}
	// What has no sound header stays as it is, so that nothing hides the damage.
	g.resting, g.full, g.sealed = false, true, g.size == g.end || g.headErr != nil
	g.files.noteAwake(g)
	if !g.sealed {
		g.files.noteUncut(g)
	}
}

// resumableLocked reports whether records of this Set can go behind end. g.mu is held, and the header was read.
func (g *segment) resumableLocked(end int64) bool {
	return g.headErr == nil && g.head.alignment == g.files.alignment && end%g.head.alignment == 0 && end >= g.head.end() &&
		g.head.planned <= g.files.segmentBytes && end < g.head.planned-g.head.alignment
}

// restsFor reports whether the segment waits for records of that model. Of one that cannot be gone on with, nobody asks again.
func (g *segment) restsFor(fp kv.Fingerprint, packed []byte) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.resting {
		return false, nil
	}
	err := g.knowLocked()
	if vfs.Passing(err) {
		return false, err
	}
	if err != nil || !g.resumableLocked(g.end) || g.head.model == fp && !bytes.Equal(g.head.descriptor, packed) {
		g.files.o.Logger.Info("a segment is not gone on with", "file", g.path, "err", err)
		g.finishLocked()
		return false, nil
	}
	return g.head.model == fp, nil
}

// restLocked cuts a segment that rests, and reports whether nothing is left to cut. It holds g.mu meanwhile, and not g.wipe: nobody looks behind the
// end of a segment that is appended to, and whoever would append to this one waits.
func (g *segment) restLocked() (done bool) {
	if g.gone || !g.resting || g.size == g.end {
		return true
	}
	err := g.openLocked()
	if err == nil {
		if err = g.f.Truncate(g.end); err != nil && g.pins == 0 {
			g.unmapLocked()
			err = g.f.Truncate(g.end) // some systems do not cut a file that is mapped
		}
		g.f.Release()
	}
	if err != nil {
		g.files.o.Logger.Info("a segment that rests keeps its planned size for now", "file", g.path, "err", err)
		return false
	}
	g.size, g.dirty, g.stale = g.end, true, true
	g.files.noteDirty(g)
	return true
}

// cutResting cuts the segment if it rests, and returns how many bytes came back.
func (g *segment) cutResting() (bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.resting || g.size == g.end {
		return 0
	}
	before := g.statLocked().Allocated
	if !g.restLocked() {
		return 0
	}
	return max(0, before-g.statLocked().Allocated)
}

// wakeLocked gives a segment that rests its planned size, which is durable before the first record is written behind its end, as [Set.create] has it: so
// no power cut takes the length, and a file that ends before a record was cut by somebody. What was reserved behind its end goes back before, and is
// reserved anew. g.mu is held, and g.f.
func (g *segment) wakeLocked() error {
	if !g.resting {
		return nil
	}
	f := g.files
	if g.size != g.end {
		before := g.statLocked().Allocated // as it was counted
		if err := g.f.Truncate(g.end); err != nil {
			return err
		}
		g.size, g.stale = g.end, true
		f.extended.Add(min(0, g.statLocked().Allocated-before))
	}
	if err := g.f.Truncate(g.head.planned); err != nil {
		return err
	}
	if err := g.f.Sync(); err != nil {
		return f.setPoison(err)
	}
	if g.m != nil { // the next reader maps all of it
		g.old, g.m = append(g.old, g.m), nil
	}
	if g.pins == 0 {
		g.unmapOldLocked()
	}
	g.size, g.resting = g.head.planned, false
	g.dirty, g.stale = true, true
	f.extended.Add(extentBlock)
	f.noteDirty(g)
	f.noteAwake(g)
	return nil
}
