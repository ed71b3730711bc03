package segments

import (
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
)

// leases are kept in the order in which they were taken. The epoch counts calls of Destroy: a lease that was taken in an
// epoch may see what was destroyed in that epoch or a later one, and nothing that was destroyed before.
type leases struct {
	mu    lock.Mutex[lock.Leases]
	epoch uint64
	open  int
	first *Lease // oldest
	last  *Lease
}

// Lease keeps what its holder can see: no record that was in the index when the lease was taken is zeroed, punched or
// unlinked until it is released. Take the lease first and look into the index afterwards.
type Lease struct {
	of         *leases
	epoch      uint64
	taken      time.Time
	short      bool
	prev, next *Lease
	released   bool // guarded by of.mu
}

// Acquire takes a lease. It costs the same however many are open.
func (s *Set) Acquire() *Lease {
	l := new(Lease)
	s.AcquireIn(l)
	return l
}

// AcquireShort takes a lease that is given up soon. [Set.Kept] does not count it.
func (s *Set) AcquireShort() *Lease {
	l := new(Lease)
	s.acquire(l, true)
	return l
}

// AcquireIn takes a lease in the memory of l, a zero Lease or one that was released.
func (s *Set) AcquireIn(l *Lease) { s.acquire(l, false) }

func (s *Set) acquire(l *Lease, short bool) {
	*l = Lease{of: &s.leases, taken: time.Now(), short: short}
	o := l.of
	o.mu.Lock()
	defer o.mu.Unlock()
	l.epoch = o.epoch
	l.prev = o.last
	if o.last != nil {
		o.last.next = l
	} else {
		o.first = l
	}
	o.last = l
	o.open++
}

// Release gives the lease up. A second call does nothing.
func (l *Lease) Release() {
	o := l.of
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.released {
		return
	}
	l.released = true
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		o.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		o.last = l.prev
	}
	l.prev, l.next = nil, nil
	o.open--
}

// Leases returns how many leases are open and since when the oldest is.
func (s *Set) Leases() (open int, oldest time.Time) { return s.leases.count() }

func (o *leases) count() (open int, oldest time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first != nil {
		oldest = o.first.taken
	}
	return o.open, oldest
}

// advance ends the current epoch and returns its number: what is destroyed now may be seen by leases up to it.
func (o *leases) advance() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.epoch++
	return o.epoch - 1
}

// blind reports whether no open lease can see what was destroyed in that epoch.
func (o *leases) blind(epoch uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first == nil || o.first.epoch > epoch
}

// oldest returns the epoch of the oldest open lease that is not short.
func (o *leases) oldest() (epoch uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for l := o.first; l != nil; l = l.next {
		if !l.short {
			return l.epoch, true
		}
	}
	return 0, false
}
