package segments

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/internal/lock"
)

// queue holds what must be destroyed and may still be seen.
type queue struct {
	mu      lock.Mutex[lock.SegmentQueue]
	locs    map[spot]doomed
	bytes   int64                // of those that are not stuck
	unlinks map[uint64]unlinking // by segment id
}

// unlinking is a segment whose file is to go.
type unlinking struct {
	epoch   uint64
	bytes   int64 // that it occupies beyond its records in the queue
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
	stuck  bool // it could not be destroyed
}

// ripe returns what no lease can see, records by segment and offset.
func (q *queue) ripe(l *leases) (unlinks []uint64, locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seen := map[uint64]bool{} // segments with a record that a lease can see
	for at, d := range q.locs {
		if l.blind(d.epoch, d.unseen) {
			locs = append(locs, d.loc)
		} else {
			seen[at.segment] = true
		}
	}
	for id, u := range q.unlinks {
		if l.blind(u.epoch, u.emptied) && !seen[id] {
			unlinks = append(unlinks, id)
		}
	}
	slices.Sort(unlinks)
	slices.SortFunc(locs, func(a, b Loc) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
	})
	return unlinks, locs
}

func (q *queue) remove(locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, loc := range locs {
		q.removeLocked(spot{loc.Segment, loc.Offset})
	}
}

func (q *queue) removeLocked(at spot) {
	if d := q.locs[at]; !d.stuck {
		q.bytes -= d.loc.Length
	}
	delete(q.locs, at)
}

// stick notes that what is still there of some records could not be destroyed, so that nobody counts on their room.
func (q *queue) stick(locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, loc := range locs {
		at := spot{loc.Segment, loc.Offset}
		if d, ok := q.locs[at]; ok && !d.stuck {
			d.stuck = true
			q.locs[at] = d
			q.bytes -= d.loc.Length
		}
	}
}

// stickSegment notes that the file of a segment could not be removed.
func (q *queue) stickSegment(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u, ok := q.unlinks[id]; ok {
		u.bytes = 0
		q.unlinks[id] = u
	}
}

// forget removes a segment with all its records, and returns those.
func (q *queue) forget(id uint64) (locs []Loc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.unlinks, id)
	for at, d := range q.locs {
		if at.segment == id {
			locs = append(locs, d.loc)
			q.removeLocked(at)
		}
	}
	return locs
}
