package segments

// Pending returns how many records wait to be destroyed, and their bytes.
func (s *Set) Pending() (n int, bytes int64) {
	q := &s.files.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.records), q.bytes
}

// PendingUnlinks returns how many segments wait to be unlinked.
func (s *Set) PendingUnlinks() int {
	q := &s.files.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.segments)
}

// Held is what all that waits occupies, records and whole segments, but for what could not be destroyed when it was tried.
func (s *Set) Held() int64 {
	q := &s.files.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.bytes
	for _, u := range q.segments {
		n += u.bytes
	}
	return n
}

// Kept is the part of what [Set.Held] returns that does not come back before a lease is released that is not short: what nobody has pinned, whole
// segments with it, and what somebody may have, with the rest of its segment where that is emptied.
func (s *Set) Kept() (unseen, seen int64) {
	q := &s.files.queue
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

// Ripe reports whether something waits that no lease can see, and that was not tried in vain before.
func (s *Set) Ripe() bool { return s.files.queue.anyReclaimable() }

// Solid reports whether destroying records gives no disk blocks back, as was seen since Open: holes cannot be punched here.
func (s *Set) Solid() bool { return s.files.solid.Load() }
