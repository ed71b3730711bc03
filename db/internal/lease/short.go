package lease

import (
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/segments"
)

// Shorts are the short leases of the store itself: to compare a block, or to copy a record. What only they keep comes back at once, so
// nobody is told for it that there is no room. Safe for concurrent use.
type Shorts struct {
	open lock.RWMutex[lock.ShortLease] // held by readers as long as a short lease is open
}

// Acquire takes a short lease.
func (s *Shorts) Acquire(set *segments.Set) *segments.Lease {
	s.open.RLock()
	return set.AcquireShort()
}

// Release ends it.
func (s *Shorts) Release(l *segments.Lease) {
	l.Release()
	s.open.RUnlock()
}

// Await returns when the short leases that are open now have ended. The caller holds no lock: not the publish gate, and no short lease.
func (s *Shorts) Await() {
	s.open.Lock()
	//lint:ignore SA2001 those who come later see nothing of what is dead by now
	s.open.Unlock()
}

// Awaited reports whether somebody waits in Await.
func (s *Shorts) Awaited() bool {
	if s.open.TryRLock() {
		s.open.RUnlock()
		return false
	}
	return true
}
