package direct

import (
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
)

// RingBytes is the size of a ring. What is read at once may be as large.
const RingBytes = 8 << 20

// rings is how many there are. A second cold restore that read through the page cache would slow both down; more of them do.
const rings = 2

// idleTime is how long a ring keeps its memory after it was used: until the next turns of a conversation, and not for good.
const idleTime = 10 * time.Second

// Ring is memory for the reads of one store, made when it is first needed, for two users at a time. The zero Ring is ready. Safe for
// concurrent use.
type Ring struct {
	mu    lock.Mutex[lock.Ring] // guards all below
	mem   [rings][]byte
	taken [rings]bool
	drop  [rings]bool // what is taken is freed when it is given back
	idle  *time.Timer
}

// Take hands memory out, RingBytes on a page boundary, until Give. It does not wait: ok is false while others have all there is, and where
// the system has no memory.
func (r *Ring) Take() (mem []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rings {
		if r.taken[i] {
			continue
		}
		if r.mem[i] == nil {
			mem, err := newMemory()
			if err != nil {
				return nil, false
			}
			r.mem[i] = mem
		}
		r.taken[i], r.drop[i] = true, false
		if r.idle != nil {
			r.idle.Stop()
		}
		return r.mem[i], true
	}
	return nil, false
}

// Give gives back what Take handed out. One ring's memory is kept for a while.
func (r *Ring) Give(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := 0
	for r.mem[i] == nil || &r.mem[i][0] != &mem[0] {
		i++
	}
	if r.taken[i] = false; i > 0 || r.drop[i] {
		r.freeLocked(i)
		return
	}
	r.idle = time.AfterFunc(idleTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.taken[0] {
			r.freeLocked(0)
		}
	})
}

// Free gives the memory back to the system, at once or when its user does. The ring can be used again.
func (r *Ring) Free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		r.idle.Stop()
	}
	for i := range rings {
		if r.drop[i] = r.taken[i]; !r.taken[i] {
			r.freeLocked(i)
		}
	}
}

// Busy reports whether somebody has memory of the ring.
func (r *Ring) Busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken != [rings]bool{}
}

// Held is how many bytes of memory the ring has.
func (r *Ring) Held() (bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, mem := range r.mem {
		bytes += len(mem)
	}
	return bytes
}

func (r *Ring) freeLocked(i int) {
	if r.mem[i] != nil {
		freeMemory(r.mem[i])
		r.mem[i] = nil
	}
}
