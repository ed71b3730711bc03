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
func (s *Set) Destroy(locs []Loc) { s.destroy(locs, false) }

// DestroyUnseen is Destroy of records that nobody had pinned when they went: no lease that is [Lease.Pinned] keeps them.
func (s *Set) DestroyUnseen(locs []Loc) { s.destroy(locs, true) }

func (s *Set) destroy(locs []Loc, unseen bool) {
	epoch := s.leases.advance()
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.locs == nil {
		q.locs, q.in = map[spot]doomed{}, map[uint64]int{}
	}
	for _, loc := range locs {
		at := spot{loc.Segment, loc.Offset}
		if _, ok := q.locs[at]; ok {
			continue
		}
		d := doomed{loc: loc, epoch: epoch, unseen: unseen}
		q.locs[at] = d
		q.note(d)
		q.in[loc.Segment]++
		q.bytes += loc.Length
		if u, ok := q.unlinks[loc.Segment]; ok {
			u.bytes = max(0, u.bytes-loc.Length)
			q.unlinks[loc.Segment] = u
		}
	}
}

// Unlink queues a whole segment in which nothing is live. It is never appended to again; [Set.Reclaim] removes the file
// once no lease is open that was taken before this call, and what [Set.Destroy] queued for it is done with it. emptied says that every record
// in it is in the queue, or was: then only the leases count that keep one of these, and those that are not [Lease.Pinned].
func (s *Set) Unlink(id uint64, emptied bool) {
	bytes := int64(0)
	if g, err := s.segment(id); err == nil {
		g.mu.Lock()
		g.finishLocked()
		g.full = true // its writer begins another
		bytes = g.statLocked().Allocated
		g.mu.Unlock()
	}
	epoch := s.leases.advance()
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unlinks == nil {
		q.unlinks = map[uint64]unlinking{}
	}
	if _, ok := q.unlinks[id]; ok {
		return
	}
	for at, d := range q.locs {
		if at.segment == id {
			bytes -= d.loc.Length
		}
	}
	q.unlinks[id] = unlinking{epoch: epoch, bytes: max(0, bytes), emptied: emptied}
}

// Pending returns how many records wait to be destroyed, and their bytes.
func (s *Set) Pending() (n int, bytes int64) {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.locs), q.bytes
}

// Held is what all that waits occupies, records and whole segments, but for what could not be destroyed when it was tried.
func (s *Set) Held() int64 {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.bytes
	for _, u := range q.unlinks {
		n += u.bytes
	}
	return n
}

// Kept is the part of what [Set.Held] returns that does not come back before a lease is released that is not short: what nobody has pinned, whole
// segments with it, and what somebody may have, with the rest of its segment where that is emptied.
func (s *Set) Kept() (unseen, seen int64) {
	oldest, keepsUnseen := s.leases.oldest()
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	segs := map[uint64]bool{} // segments with records that are kept and may be seen
	for at, d := range q.locs {
		switch {
		case d.stuck():
		case d.unseen && d.epoch >= keepsUnseen:
			unseen += d.loc.Length
		case !d.unseen && d.epoch >= oldest:
			seen += d.loc.Length
			segs[at.segment] = true
		}
	}
	for id, u := range q.unlinks {
		switch {
		case u.emptied && segs[id]:
			seen += u.bytes
		case u.epoch >= keepsUnseen || u.epoch >= oldest && !u.emptied:
			unseen += u.bytes
		}
	}
	return unseen, seen
}

// Ripe reports whether something waits that no lease can see, and that was not tried in vain before.
func (s *Set) Ripe() bool { return s.queue.any(&s.leases) }

// Solid reports whether destroying records gives no disk blocks back, as was seen since Open: holes cannot be punched here.
func (s *Set) Solid() bool { return s.solid.Load() }

// PendingUnlinks returns how many segments wait to be unlinked.
func (s *Set) PendingUnlinks() int {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.unlinks)
}

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
	if err := s.writable(); err != nil {
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
		gone, old = s.reclaimRipe(ctx, stop, &why)
		done = append(done, gone...)
	}
	err = tell(why.err(), s.Err())
	if more {
		err = errors.Join(err, ctx.Err())
	}
	return done, more, err
}

// reclaimRipe is Reclaim of what is ripe, or, if old says so, of what was found to be ripe before.
func (s *Set) reclaimRipe(ctx context.Context, stop func(next Loc) bool, why *failures) (done []Loc, old bool) {
	unlinks, wipes, old := s.queue.ripe(&s.leases)
	var unlinked []uint64
	for _, id := range unlinks {
		if ctx.Err() != nil {
			break // what is unlinked already is synced below
		}
		gone, err := s.tryUnlink(id)
		if err != nil {
			why.add(err, 1)
			s.queue.stickSegment(id)
		}
		if gone {
			unlinked = append(unlinked, id)
		}
	}
	// Where there is no file, somebody may have been killed between removing it and syncing the folder.
	if len(unlinks) > 0 || slices.ContainsFunc(wipes, func(d doomed) bool { return !s.Has(d.loc.Segment) }) {
		if err := s.syncFolder(); err != nil {
			why.add(err, 1)
			s.queue.anew()
			return nil, false
		}
	}
	for _, id := range unlinked {
		var locs []Loc
		locs, wipes = s.queue.forget(id)
		done = append(done, locs...)
	}
	for len(wipes) > 0 {
		n := 1
		for n < len(wipes) && wipes[n].loc.Segment == wipes[0].loc.Segment {
			n++
		}
		gone, failed, tried, err := s.wipe(wipes[:n], stop)
		why.add(err, len(failed))
		s.queue.remove(gone)
		s.queue.stick(failed)
		s.queue.tried(tried)
		done, wipes = append(done, gone...), wipes[tried:]
		if s.Err() != nil || tried < n {
			break
		}
	}
	return done, old
}

// tryUnlink is unlink, but for a segment that somebody walks over: it is left for later.
func (s *Set) tryUnlink(id uint64) (gone bool, err error) {
	g, err := s.segment(id)
	if err != nil {
		return true, nil // there is no such file
	}
	if !g.tryChange() {
		return false, nil
	}
	defer g.changed()
	return s.unlinkLocked(g)
}

// unlink removes a segment's file. It waits for another time while the file is being read or written.
func (s *Set) unlink(id uint64) (gone bool, err error) {
	g, err := s.segment(id)
	if err != nil {
		return true, nil // there is no such file
	}
	g.wipe.Lock()
	defer g.changed()
	return s.unlinkLocked(g)
}

// unlinkLocked is unlink. The caller holds g.wipe.
func (s *Set) unlinkLocked(g *segment) (gone bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pins > 0 || len(g.inflight) > 0 {
		return false, nil
	}
	g.knowLocked()  // one that cannot be opened is no other store's, as far as anybody knows
	g.dirty = false // nobody needs these bytes
	g.dropLocked()
	if err := g.lookAgainLocked(); errors.Is(err, ErrForeign) {
		s.o.Logger.Warn("what lies in the place of a segment is left alone", "file", g.path, "err", err)
	} else if info, err := s.o.FS.Stat(g.path); err == nil && !info.Regular {
		s.o.Logger.Warn("what lies in the place of a segment is left alone", "file", g.path, "err", vfs.ErrNotRegular)
	} else if err := s.o.FS.Remove(g.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	g.gone = true
	s.mu.Lock()
	delete(s.segs, g.id)
	s.newName = true
	delete(s.dirty, g)
	same := func(x *segment) bool { return x == g }
	s.filling, s.resting = slices.DeleteFunc(s.filling, same), slices.DeleteFunc(s.resting, same)
	s.mu.Unlock()
	return true, nil
}

// wipe destroys records of one segment, in their order, until stop says so, and returns those that are durably gone, those that could not be
// destroyed, with the error that tells of these, and how many were tried or are left for later. It does nothing while somebody walks over the segment.
func (s *Set) wipe(wipes []doomed, stop func(next Loc) bool) (done, failed []Loc, tried int, err error) {
	g, err := s.segment(wipes[0].loc.Segment)
	if err != nil {
		return places(wipes), nil, len(wipes), nil // the file is gone, and the bytes with it
	}
	if !g.tryChange() {
		return nil, nil, len(wipes), nil
	}
	defer g.changed()
	return g.wipeLocked(wipes, stop)
}

// wipeLocked is wipe. The caller holds g.wipe.
func (g *segment) wipeLocked(wipes []doomed, stop func(next Loc) bool) (done, failed []Loc, tried int, err error) {
	f, err := g.pinFile()
	if errors.Is(err, ErrMissing) {
		return places(wipes), nil, len(wipes), nil
	}
	if err != nil {
		return nil, places(wipes), len(wipes), err
	}
	defer g.unpinFile()
	if g.foreign() {
		return places(wipes), nil, len(wipes), nil // what was ours is not there any more
	}
	info, err := f.Stat()
	if err != nil {
		return nil, places(wipes), len(wipes), err
	}
	zeros := make([]byte, 4<<10)
	var run []Loc // of records one behind the other, in [from, to), that lost their headers
	var from, to int64
	punch := func() {
		if len(run) == 0 {
			return
		}
		_, perr := g.punch(f, from, to-from)
		g.markDirty() // after the last of it: a Sync of somebody else takes the mark away
		if perr != nil {
			failed, err = append(failed, run...), tell(err, perr)
		} else {
			done = append(done, run...)
		}
		run = nil
	}
	for _, d := range wipes {
		loc := d.loc
		if stop(loc) {
			break
		}
		tried++
		n, merr := g.extent(loc, info.Size)
		if merr != nil { // no map can be had just now
			failed, err = append(failed, places(wipes[tried-1:])...), tell(err, merr)
			tried = len(wipes)
			break
		}
		if n <= 0 {
			done = append(done, loc)
			continue
		}
		if len(run) > 0 && loc.Offset != to {
			punch()
		}
		// Headers first: a crash in between must not leave a record that still parses.
		head := min(n, int64(len(zeros)))
		_, werr := f.WriteAt(zeros[:head], loc.Offset)
		if errors.Is(werr, vfs.ErrNoSpace) { // on a full disk not even the page of one that was punched before a crash
			_, werr = f.Punch(loc.Offset, head)
		}
		g.markDirty()
		if werr != nil {
			failed, err = append(failed, loc), tell(err, werr)
			punch()
		} else {
			if len(run) == 0 {
				from = loc.Offset
			}
			run, to = append(run, loc), loc.Offset+n
		}
		if d.stuck() {
			if punch(); slices.Contains(failed, loc) {
				tried = len(wipes) // thousands may fail like this one, each time
				break
			}
		}
	}
	punch()
	if len(done) == 0 {
		return nil, failed, tried, err
	}
	if serr := g.sync(); serr != nil {
		return nil, append(failed, done...), tried, tell(err, serr)
	}
	return done, failed, tried, err
}

func places(wipes []doomed) (locs []Loc) {
	for _, d := range wipes {
		locs = append(locs, d.loc)
	}
	return locs
}

// punch makes [off, off+n) a hole, or zeros where the file system punches none: Solid knows that then. The caller has pinned the file, and
// not its map.
func (g *segment) punch(f vfs.File, off, n int64) (freed bool, err error) {
	if !holesUnderMaps {
		g.unmap() // if somebody reads there just now, the range becomes zeros
	}
	freed, err = f.Punch(off, n)
	if err == nil && !freed {
		g.set.solid.Store(true)
	}
	return freed, err
}

// holesUnderMaps is [vfs.HolesUnderMaps]. A variable for tests.
var holesUnderMaps = vfs.HolesUnderMaps

// extent is how many bytes at loc may be destroyed in a file of that size: none outside of that record, and none of the header. A header that is
// zero or broken says nothing, then loc is believed.
func (g *segment) extent(loc Loc, size int64) (n int64, err error) {
	b, err := g.pin()
	if err != nil {
		return 0, err
	}
	defer g.unpin()
	return g.extentIn(b[:min(int64(len(b)), size)], loc), nil // writing behind the end of a file that somebody cut would lengthen it
}

func (g *segment) extentIn(b []byte, loc Loc) (n int64) {
	_, alignment, known := g.identity()
	limit := int64(len(b))
	g.mu.Lock()
	head := known && loc.Offset >= minAlignment && loc.Offset < g.head.end()
	g.mu.Unlock()
	if head {
		return 0 // what was taken for rubbish when the header could not be read
	}
	if loc.Offset >= limit && loc.Length > 0 {
		return 0 // it was lost before the file was that long, or it was cut away
	}
	if loc.Offset < minAlignment || loc.Length <= 0 || known && loc.Offset%alignment != 0 {
		g.set.o.Logger.Error("a record to destroy lies outside of its segment", "file", g.path, "offset", loc.Offset, "length", loc.Length)
		return 0
	}
	n = min(loc.Length, limit-loc.Offset)
	verr := vfs.Guard(func() error {
		h, v, _ := decodeRecordHead(b[loc.Offset:limit], limit-loc.Offset, g.at(loc.Offset))
		if own := alignUp(h.total, alignment); v == isRecord && own != loc.Length {
			g.set.o.Logger.Error("a record to destroy has another length", "file", g.path, "offset", loc.Offset, "length", own, "expected", loc.Length)
			n = min(n, own)
		}
		return nil
	})
	if verr != nil {
		g.set.o.Logger.Warn("a record to destroy cannot be read", "file", g.path, "offset", loc.Offset, "err", verr)
	}
	return n
}
