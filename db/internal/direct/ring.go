package direct

import (
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
)

// RingBytes is the size of a ring. What is read at once may be as large.
const RingBytes = 8 << 20

// idleTime is how long a ring keeps its memory after it was used: until the next turns of a conversation, and not for good.
const idleTime = 10 * time.Second

// Ring is memory for the reads of one store, made when it is first needed. The zero Ring is ready. Safe for concurrent use.
type Ring struct {
	mu    lock.Mutex[lock.Ring] // guards all below
	mem   []byte
	taken bool
	drop  bool // give the memory back when it is not used any more
	idle  *time.Timer
}

// Take hands the ring's memory out, RingBytes on a page boundary, until Give. It does not wait: ok is false while somebody else has it,
// and where the system has no memory.
func (r *Ring) Take() (mem []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken {
		return nil, false
	}
	if r.idle != nil {
		r.idle.Stop()
		r.idle = nil
	}
	if r.mem == nil {
		mem, err := newMemory()
		if err != nil {
			return nil, false
		}
		r.mem = mem
	}
	r.taken, r.drop = true, false
	return r.mem, true
}

// Give gives back what Take handed out.
func (r *Ring) Give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = false
	if r.drop {
		r.freeLocked()
		return
	}
	var idle *time.Timer
	idle = time.AfterFunc(idleTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.idle == idle { // nobody has taken the ring since
			r.freeLocked()
		}
	})
	r.idle = idle
}

// Free gives the memory back to the system, at once or when its user does. The ring can be used again.
func (r *Ring) Free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drop = r.taken; !r.taken {
		r.freeLocked()
	}
}

// Busy reports whether somebody has the ring.
func (r *Ring) Busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Held is how many bytes of memory the ring has.
func (r *Ring) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mem)
}

func (r *Ring) freeLocked() {
	if r.idle != nil {
		r.idle.Stop()
		r.idle = nil
	}
	if r.mem != nil {
		freeMemory(r.mem)
		r.mem = nil
	}
}
