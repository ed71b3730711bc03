package segments

import (
	"math"
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
)

// leases are kept in the order in which they were taken. The epoch counts calls of Destroy: a lease that was taken in an
// epoch may see what was destroyed in that epoch or a later one, and nothing that was destroyed before.
type leases struct {
	mu      lock.Mutex[lock.Leases]
	epoch   uint64
	open    int
	seeking list // whose holders may look at anything
	pinned  list // whose holders look at what they have pinned, see Lease.Pinned
}

// list is a ring of leases, the oldest first, that begins and ends with root, which is none and older than all.
type list struct{ root Lease }

func (o *list) init() { o.root.prev, o.root.next = &o.root, &o.root }

// first is the oldest lease; nil if there is none.
func (o *list) first() *Lease {
	if o.root.next == &o.root {
		return nil
	}
	return o.root.next
}

// Lease keeps what its holder can see: no record that was in the index when the lease was taken is zeroed, punched or
// unlinked until it is released. Take the lease first and look into the index afterwards.
type Lease struct {
	of         *leases
	epoch      uint64
	taken      time.Time
	short      bool
	in         *list // guarded by of.mu, like all below
	prev, next *Lease
	released   bool
}

func (o *leases) init() {
	o.seeking.init()
	o.pinned.init()
}

// Acquire takes a lease. It costs the same however many are open.
func (s *Set) Acquire() *Lease {
	l := new(Lease)
	s.files.queue.leases.acquire(l, false)
	return l
}

// AcquireShort takes a lease that is given up soon. [Set.Kept] does not count it.
func (s *Set) AcquireShort() *Lease {
	l := new(Lease)
	s.files.queue.leases.acquire(l, true)
	return l
}

// AcquireIn is AcquireShort in the memory of l, a zero Lease or one that was released.
func (s *Set) AcquireIn(l *Lease) { s.files.queue.leases.acquire(l, true) }

func (o *leases) acquire(l *Lease, short bool) {
	*l = Lease{of: o, short: short}
	o.mu.Lock()
	defer o.mu.Unlock()
	l.taken, l.epoch = time.Now(), o.epoch
	o.seeking.add(l)
	o.open++
}

// Pinned says that from here on the holder looks only at records that it has pinned, as long as the lease lasts, which may be long: it keeps
// no record any more that is destroyed unseen. What others may have pinned is kept as before.
func (l *Lease) Pinned() {
	o := l.of
	o.mu.Lock()
	defer o.mu.Unlock()
	if !l.released && l.in != &o.pinned {
		l.remove()
		l.short = false
		o.pinned.add(l)
	}
}

// add puts l in behind all that were taken before it: epochs grow, and clocks may stand still.
func (o *list) add(l *Lease) {
	before := o.root.prev
	for before.epoch > l.epoch || before.epoch == l.epoch && before.taken.After(l.taken) {
		before = before.prev
	}
	l.in, l.prev, l.next = o, before, before.next
	l.prev.next, l.next.prev = l, l
}

func (l *Lease) remove() {
	l.prev.next, l.next.prev = l.next, l.prev
	l.prev, l.next = nil, nil // who keeps it keeps no other
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
	l.remove()
	o.open--
}

// Leases returns how many leases are open and since when the oldest is.
func (s *Set) Leases() (open int, oldest time.Time) { return s.files.queue.leases.count() }

func (o *leases) count() (open int, oldest time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, in := range []*list{&o.seeking, &o.pinned} {
		if l := in.first(); l != nil && (oldest.IsZero() || l.taken.Before(oldest)) {
			oldest = l.taken
		}
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

// blind reports whether no open lease can see what was destroyed in that epoch, unseen or not.
func (o *leases) blind(epoch uint64, unseen bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	after := func(in *list) bool { l := in.first(); return l == nil || l.epoch > epoch }
	return after(&o.seeking) && (unseen || after(&o.pinned))
}

// oldest returns the epochs of the oldest open lease that is not short, and of the oldest of those that keep what is unseen; beyond all
// epochs if there is none.
func (o *leases) oldest() (long, keepsUnseen uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := func(in *list) uint64 {
		for l := in.root.next; l != &in.root; l = l.next {
			if !l.short {
				return l.epoch
			}
		}
		return math.MaxUint64
	}
	keepsUnseen = first(&o.seeking)
	return min(keepsUnseen, first(&o.pinned)), keepsUnseen
}
