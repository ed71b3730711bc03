package segments

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/internal/lock"
)

// queue holds what must be destroyed, until no lease can see it.
type queue struct {
	leases leases

	mu          lock.Mutex[lock.SegmentQueue]
	records     map[spot]deadRecord
	bytes       int64                  // of the records whose destruction has not failed
	reclaimable []deadRecord           // of records: no lease can see these; in the order of next
	segments    map[uint64]deadSegment // by id
	perSegment  map[uint64]int         // how many records are in a segment
	postponed   map[uint64]bool        // segments that somebody walked over when their records were tried

	// One more than the lowest epoch of the records that a lease may still see, and whose destruction has not failed; 0 if there are none.
	// While a lease sees the lowest, it sees the others.
	lowestUnseen, lowestSeen uint64
}

// deadSegment is a segment whose file must go.
type deadSegment struct {
	epoch   uint64
	bytes   int64 // that it occupies beyond its records in the queue
	failed  bool  // the file could not be removed
	emptied bool  // all its records are in the queue, or were: a lease that sees none of these sees nothing of the segment
}

// spot identifies a record for good: offsets are never used twice.
type spot struct {
	segment uint64
	offset  int64
}

// deadRecord is a record whose bytes must go.
type deadRecord struct {
	loc    Loc
	epoch  uint64
	unseen bool // nobody had pinned it: no lease that is Pinned sees it
	failed int  // how often its destruction failed
}

// hasFailed reports whether nobody may count on the record's room.
func (d deadRecord) hasFailed() bool { return d.failed > 0 }

// noteEpoch counts the epoch of a record that a lease may still see.
func (q *queue) noteEpoch(d deadRecord) {
	lowest := &q.lowestSeen
	if d.unseen {
		lowest = &q.lowestUnseen
	}
	if *lowest == 0 || d.epoch < *lowest {
		*lowest = d.epoch + 1
	}
}

// destroy queues records.
func (q *queue) destroy(locs []Loc, unseen bool) {
	epoch := q.leases.advance()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.records == nil {
		q.records, q.perSegment = map[spot]deadRecord{}, map[uint64]int{}
	}
	for _, loc := range locs {
		at := spot{loc.Segment, loc.Offset}
		if _, ok := q.records[at]; ok {
			continue
		}
		d := deadRecord{loc: loc, epoch: epoch, unseen: unseen}
		q.records[at] = d
		q.noteEpoch(d)
		q.perSegment[loc.Segment]++
		q.bytes += loc.Length
		if u, ok := q.segments[loc.Segment]; ok {
			u.bytes = max(0, u.bytes-loc.Length)
			q.segments[loc.Segment] = u
		}
	}
}

// unlink queues a segment that occupies so many bytes.
func (q *queue) unlink(id uint64, bytes int64, emptied bool) {
	epoch := q.leases.advance()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.segments == nil {
		q.segments = map[uint64]deadSegment{}
	}
	if _, ok := q.segments[id]; ok {
		return
	}
	for at, d := range q.records {
		if at.segment == id {
			bytes -= d.loc.Length
		}
	}
	q.segments[id] = deadSegment{epoch: epoch, bytes: max(0, bytes), emptied: emptied}
}

// next returns what no lease can see, records by segment and offset. In a segment, records whose destruction has failed come last, by how often it did.
// As long as records are left that an earlier call found, it returns these alone: old is true then.
func (q *queue) next() (unlinks []uint64, wipes []deadRecord, old bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.reclaimable) > 0 {
		return nil, q.reclaimable, true
	}
	q.lowestUnseen, q.lowestSeen = 0, 0
	seen := map[uint64]bool{} // segments with a record that a lease can see
	for at, d := range q.records {
		if q.leases.blind(d.epoch, d.unseen) {
			q.reclaimable = append(q.reclaimable, d)
			continue
		}
		seen[at.segment] = true
		if !d.hasFailed() {
			q.noteEpoch(d)
		}
	}
	for id, u := range q.segments {
		if q.leases.blind(u.epoch, u.emptied) && !seen[id] {
			unlinks = append(unlinks, id)
		}
	}
	slices.Sort(unlinks)
	slices.SortFunc(q.reclaimable, func(a, b deadRecord) int {
		return cmp.Or(cmp.Compare(a.loc.Segment, b.loc.Segment), cmp.Compare(a.failed, b.failed), cmp.Compare(a.loc.Offset, b.loc.Offset))
	})
	return unlinks, q.reclaimable, false
}

// tried drops the first n records that next returned: they were tried, or put off. The next call returns the rest.
func (q *queue) tried(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reclaimable = q.reclaimable[n:]; len(q.reclaimable) == 0 {
		q.reclaimable = nil
	}
}

// lookAgain has next look at all records.
func (q *queue) lookAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reclaimable = nil
}

// anyReclaimable reports whether there is something that no lease can see, whose destruction has not failed and was not put off.
func (q *queue) anyReclaimable() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.reclaimable) > 0 || q.lowestUnseen > 0 && q.leases.blind(q.lowestUnseen-1, true) || q.lowestSeen > 0 && q.leases.blind(q.lowestSeen-1, false) {
		return true
	}
	for id, u := range q.segments {
		if !u.failed && !q.postponed[id] && q.leases.blind(u.epoch, u.emptied) && (!u.emptied || q.perSegment[id] == 0) {
			return true
		}
	}
	return false
}

// remove drops records that are destroyed.
func (q *queue) remove(locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, loc := range locs {
		q.removeLocked(spot{loc.Segment, loc.Offset})
	}
}

func (q *queue) removeLocked(at spot) {
	if d := q.records[at]; !d.hasFailed() {
		q.bytes -= d.loc.Length
	}
	delete(q.records, at)
	if q.perSegment[at.segment]--; q.perSegment[at.segment] <= 0 {
		delete(q.perSegment, at.segment)
	}
}

// fail notes that the destruction of records has failed.
func (q *queue) fail(locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, loc := range locs {
		at := spot{loc.Segment, loc.Offset}
		d, ok := q.records[at]
		if !ok {
			continue
		}
		if !d.hasFailed() {
			q.bytes -= d.loc.Length
		}
		d.failed++
		q.records[at] = d
	}
}

// failSegment notes that a segment's file could not be removed.
func (q *queue) failSegment(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u, ok := q.segments[id]; ok {
		u.bytes, u.failed = 0, true
		q.segments[id] = u
	}
}

// forget drops a segment whose file is gone. It returns the segment's records, and the other ones that next returned.
func (q *queue) forget(id uint64) (locs []Loc, ready []deadRecord) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.segments, id)
	q.reclaimable = slices.DeleteFunc(q.reclaimable, func(d deadRecord) bool { return d.loc.Segment == id })
	for at, d := range q.records {
		if at.segment == id {
			locs = append(locs, d.loc)
			q.removeLocked(at)
		}
	}
	return locs, q.reclaimable
}

// postpone puts a segment off until resume, because somebody walks over it.
func (q *queue) postpone(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.postponed == nil {
		q.postponed = map[uint64]bool{}
	}
	q.postponed[id] = true
}

// resume ends postpone.
func (q *queue) resume(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.postponed[id] {
		return
	}
	delete(q.postponed, id)
	for at, d := range q.records {
		if at.segment == id && !d.hasFailed() {
			q.noteEpoch(d)
		}
	}
}

// pending returns how many records wait, and the bytes of those whose destruction has not failed.
func (q *queue) pending() (n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.records), q.bytes
}

// pendingSegments returns how many segments wait.
func (q *queue) pendingSegments() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.segments)
}

// held is what all that waits occupies, but for what could not be destroyed when it was tried.
func (q *queue) held() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.bytes
	for _, u := range q.segments {
		n += u.bytes
	}
	return n
}

// kept is the part of held that leases keep which are not short: of records that nobody had pinned, and of the others.
func (q *queue) kept() (unseen, seen int64) {
	oldest, keepsUnseen := q.leases.oldest()
	q.mu.Lock()
	defer q.mu.Unlock()
	segs := map[uint64]bool{} // segments with records that are kept and may be seen
	for at, d := range q.records {
		switch {
		case d.hasFailed():
		case d.unseen && d.epoch >= keepsUnseen:
			unseen += d.loc.Length
		case !d.unseen && d.epoch >= oldest:
			seen += d.loc.Length
			segs[at.segment] = true
		}
	}
	for id, u := range q.segments {
		switch {
		case u.emptied && segs[id]:
			seen += u.bytes
		case u.epoch >= keepsUnseen || u.epoch >= oldest && !u.emptied:
			unseen += u.bytes
		}
	}
	return unseen, seen
}
