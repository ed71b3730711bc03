package segments

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/internal/lock"
)

// queue holds what must be destroyed and may still be seen.
type queue struct {
	leases leases // that may see it

	mu      lock.Mutex[lock.SegmentQueue]
	locs    map[spot]doomed
	bytes   int64                // of those that are not stuck
	ready   []doomed             // of locs: no lease can see them any more; as ripe orders them
	unlinks map[uint64]unlinking // by segment id
	in      map[uint64]int       // how many of locs are in a segment
	passed  map[uint64]bool      // segments that somebody walked over when they were tried

	// Behind the lowest epochs of those that are neither ready nor stuck; 0 if there are none. If no lease is blind for these, none is for others.
	unseen, seen uint64
}

// unlinking is a segment whose file is to go.
type unlinking struct {
	epoch   uint64
	bytes   int64 // that it occupies beyond its records in the queue
	stuck   bool  // it could not be removed
	emptied bool  // no record was in it that was not in the queue: who can see none of these sees nothing of it
}

// spot identifies a record for good: offsets are never used twice.
type spot struct {
	segment uint64
	offset  int64
}

type doomed struct {
	loc    Loc
	epoch  uint64
	unseen bool // no lease that is Pinned sees it
	failed int  // how often it could not be destroyed
}

// stuck reports whether it was tried in vain, so that nobody counts on its room.
func (d doomed) stuck() bool { return d.failed > 0 }

// note counts an epoch of what a lease may still see.
func (q *queue) note(d doomed) {
	lowest := &q.seen
	if d.unseen {
		lowest = &q.unseen
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

// unlink queues a segment that occupies so many bytes.
func (q *queue) unlink(id uint64, bytes int64, emptied bool) {
	epoch := q.leases.advance()
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

// ripe returns what no lease can see, records by segment and offset. In each segment, those that were tried in vain come last, the one first that
// was tried the fewest times. Those that it found the last time and that were not tried come first, alone: old says so.
func (q *queue) ripe() (unlinks []uint64, wipes []doomed, old bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) > 0 {
		return nil, q.ready, true
	}
	q.unseen, q.seen = 0, 0
	seen := map[uint64]bool{} // segments with a record that a lease can see
	for at, d := range q.locs {
		if q.leases.blind(d.epoch, d.unseen) {
			q.ready = append(q.ready, d)
			continue
		}
		seen[at.segment] = true
		if !d.stuck() {
			q.note(d)
		}
	}
	for id, u := range q.unlinks {
		if q.leases.blind(u.epoch, u.emptied) && !seen[id] {
			unlinks = append(unlinks, id)
		}
	}
	slices.Sort(unlinks)
	slices.SortFunc(q.ready, func(a, b doomed) int {
		return cmp.Or(cmp.Compare(a.loc.Segment, b.loc.Segment), cmp.Compare(a.failed, b.failed), cmp.Compare(a.loc.Offset, b.loc.Offset))
	})
	return unlinks, q.ready, false
}

// tried notes that those were the first n that ripe returned, or that they are left for later. The rest is for the next time.
func (q *queue) tried(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready = q.ready[n:]; len(q.ready) == 0 {
		q.ready = nil
	}
}

// anew has ripe look at all of them the next time.
func (q *queue) anew() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = nil
}

// any reports whether there is something that no lease can see, and that was neither tried in vain nor passed.
func (q *queue) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) > 0 || q.unseen > 0 && q.leases.blind(q.unseen-1, true) || q.seen > 0 && q.leases.blind(q.seen-1, false) {
		return true
	}
	for id, u := range q.unlinks {
		if !u.stuck && !q.passed[id] && q.leases.blind(u.epoch, u.emptied) && (!u.emptied || q.in[id] == 0) {
			return true
		}
	}
	return false
}

func (q *queue) remove(locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, loc := range locs {
		q.removeLocked(spot{loc.Segment, loc.Offset})
	}
}

func (q *queue) removeLocked(at spot) {
	if d := q.locs[at]; !d.stuck() {
		q.bytes -= d.loc.Length
	}
	delete(q.locs, at)
	if q.in[at.segment]--; q.in[at.segment] <= 0 {
		delete(q.in, at.segment)
	}
}

// stick notes that what is still there of some records could not be destroyed, so that nobody counts on their room.
func (q *queue) stick(locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, loc := range locs {
		at := spot{loc.Segment, loc.Offset}
		d, ok := q.locs[at]
		if !ok {
			continue
		}
		if !d.stuck() {
			q.bytes -= d.loc.Length
		}
		d.failed++
		q.locs[at] = d
	}
}

// stickSegment notes that the file of a segment could not be removed.
func (q *queue) stickSegment(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u, ok := q.unlinks[id]; ok {
		u.bytes, u.stuck = 0, true
		q.unlinks[id] = u
	}
}

// forget removes a segment with all its records, and returns those, and what is left of what ripe returned.
func (q *queue) forget(id uint64) (locs []Loc, ready []doomed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.unlinks, id)
	q.ready = slices.DeleteFunc(q.ready, func(d doomed) bool { return d.loc.Segment == id })
	for at, d := range q.locs {
		if at.segment == id {
			locs = append(locs, d.loc)
			q.removeLocked(at)
		}
	}
	return locs, q.ready
}

// pass notes that somebody may be walking over a segment: what is in it counts as not ripe, until again.
func (q *queue) pass(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passed == nil {
		q.passed = map[uint64]bool{}
	}
	q.passed[id] = true
}

// again has a segment's records tried that were passed.
func (q *queue) again(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.passed[id] {
		return
	}
	delete(q.passed, id)
	for at, d := range q.locs {
		if at.segment == id && !d.stuck() {
			q.note(d)
		}
	}
}
