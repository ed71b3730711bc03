package segments

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Destroy queues records whose bytes must die, in no hurry: [Set.Reclaim] does it once no lease is open that was taken
// before this call. The caller sees to it that the records are out of the index, and that the log says so durably,
// before it calls Destroy. A record that is queued already is not queued again.
func (s *Set) Destroy(locs []Loc) { s.files.queue.destroy(locs, false) }

// DestroyUnseen is Destroy of records that nobody had pinned when they went: no lease that is [Lease.Pinned] keeps them.
func (s *Set) DestroyUnseen(locs []Loc) { s.files.queue.destroy(locs, true) }

// Unlink queues a whole segment in which nothing is live. It is never appended to again; [Set.Reclaim] removes the file
// once no lease is open that was taken before this call, and what [Set.Destroy] queued for it is done with it. emptied says that every record
// in it is in the queue, or was: then only the leases count that keep one of these, and those that are not [Lease.Pinned].
func (s *Set) Unlink(id uint64, emptied bool) {
	bytes := int64(0)
	if g, err := s.files.segment(id); err == nil {
		g.mu.Lock()
		g.finishLocked()
		g.full = true // its writer begins another
		bytes = g.statLocked().Allocated
		g.mu.Unlock()
	}
	s.files.queue.unlink(id, bytes, emptied)
}

// Pending returns how many records wait to be destroyed, and their bytes.
func (s *Set) Pending() (n int, bytes int64) { return s.files.queue.pending() }

// PendingUnlinks returns how many segments wait to be unlinked.
func (s *Set) PendingUnlinks() int { return s.files.queue.pendingSegments() }

// Held is what all that waits occupies, records and whole segments. What could not be destroyed when it was tried is left out.
func (s *Set) Held() int64 { return s.files.queue.held() }

// Kept is the part of [Set.Held] that comes back only when a lease is released that is not short. unseen are the bytes of records that
// nobody had pinned, and of whole segments; seen are those of the other records, and what else is in their segments if these are emptied.
func (s *Set) Kept() (unseen, seen int64) { return s.files.queue.kept() }

// Ripe reports whether something waits that no lease can see, and whose destruction has not failed before.
func (s *Set) Ripe() bool { return s.files.queue.anyReclaimable() }

// Solid reports whether the file system punches no holes, as was seen since Open: destroyed records give no disk blocks back.
func (s *Set) Solid() bool { return s.files.solid.Load() }

// Reclaim destroys what is queued and no open lease can see: it overwrites each record's header with zeros, punches its
// pages, syncs the files, and unlinks segments. done are the records whose bytes are gone for good, those of files that
// do not exist included. It must not be called from a callback of Read, Scan or Verify.
//
// What failed stays in the queue; doing it twice is harmless. Of what failed before in a segment, the first that fails again ends the tries there.
// The error is the first, with one of each other cause, and says how many there were. What lies in a segment that somebody walks over stays, too, and
// is no error: [Set.Ripe] says when the walk is over.
//
// enough, if there is one, is asked before each record, and told how many went before and their bytes; it may take its time. After a true no
// further one is destroyed, and more says that there are some.
func (s *Set) Reclaim(ctx context.Context, enough func(records int, bytes int64) bool) (done []Loc, more bool, err error) {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if err := s.files.writable(); err != nil {
		return nil, false, err
	}
	records, bytes := 0, int64(0)
	stop := func(next Loc) bool {
		if more = more || ctx.Err() != nil || enough != nil && enough(records, bytes); !more {
			records, bytes = records+1, bytes+next.Length
		}
		return more
	}
	var why failures
	for old := true; old && !more && s.Err() == nil; {
		var gone []Loc
		gone, old = s.files.reclaimNext(ctx, stop, &why)
		done = append(done, gone...)
	}
	err = tell(why.err(), s.Err())
	if more {
		err = errors.Join(err, ctx.Err())
	}
	return done, more, err
}

// reclaimNext is Reclaim of what one call of the queue's next returns.
func (f *files) reclaimNext(ctx context.Context, stop func(next Loc) bool, why *failures) (done []Loc, old bool) {
	unlinks, wipes, old := f.queue.next()
	var unlinked []uint64
	for _, id := range unlinks {
		if ctx.Err() != nil {
			break // what is unlinked already is synced below
		}
		gone, err := f.tryUnlink(id)
		if err != nil {
			why.add(err, 1)
			f.queue.failSegment(id)
		}
		if gone {
			unlinked = append(unlinked, id)
		}
	}
	// Where there is no file, somebody may have been killed between removing it and syncing the folder.
	if len(unlinks) > 0 || slices.ContainsFunc(wipes, func(d deadRecord) bool { return !f.has(d.loc.Segment) }) {
		if err := f.syncFolder(); err != nil {
			why.add(err, 1)
			f.queue.lookAgain()
			return nil, false
		}
	}
	for _, id := range unlinked {
		var locs []Loc
		locs, wipes = f.queue.forget(id)
		done = append(done, locs...)
	}
	for len(wipes) > 0 {
		n := 1
		for n < len(wipes) && wipes[n].loc.Segment == wipes[0].loc.Segment {
			n++
		}
		gone, failed, tried, err := f.wipe(wipes[:n], stop)
		why.add(err, len(failed))
		f.queue.remove(gone)
		f.queue.fail(failed)
		f.queue.tried(tried)
		done, wipes = append(done, gone...), wipes[tried:]
		if f.poison.Err() != nil || tried < n {
			break
		}
	}
	return done, old
}

// tryUnlink is unlink, but for a segment that somebody walks over: it is left for later.
func (f *files) tryUnlink(id uint64) (gone bool, err error) {
	g, err := f.segment(id)
	if err != nil {
		return true, nil // there is no such file
	}
	if !g.tryChange() {
		return false, nil
	}
	defer g.changed()
	return g.unlinkLocked()
}

// unlink removes a segment's file. It waits for another time while the file is being read or written.
func (f *files) unlink(id uint64) (gone bool, err error) {
	g, err := f.segment(id)
	if err != nil {
		return true, nil // there is no such file
	}
	g.wipe.Lock()
	defer g.changed()
	return g.unlinkLocked()
}

// unlinkLocked is unlink. The caller holds g.wipe.
func (g *segment) unlinkLocked() (gone bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pins > 0 || len(g.inflight) > 0 {
		return false, nil
	}
	g.knowLocked()  // one that cannot be opened is no other store's, as far as anybody knows
	g.dirty = false // nobody needs these bytes
	g.dropLocked()
	if err := g.lookAgainLocked(); errors.Is(err, ErrForeign) {
		g.files.o.Logger.Warn("what lies in the place of a segment is left alone", "file", g.path, "err", err)
	} else if info, err := g.files.o.FS.Stat(g.path); err == nil && !info.Regular {
		g.files.o.Logger.Warn("what lies in the place of a segment is left alone", "file", g.path, "err", vfs.ErrNotRegular)
	} else if err := g.files.o.FS.Remove(g.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	g.gone = true
	g.files.remove(g)
	return true, nil
}
