package commit

import (
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// Recency holds the uses of blocks that the index does not have yet. A match that ends in a block moves it up in the order of eviction, and
// waits for nobody.
type Recency struct {
	mu   lock.Mutex[lock.Recency]
	uses []use // guarded by mu
}

// use says that a match ended in a block.
type use struct {
	key    kv.Key
	minute uint32
}

// usesLimit bounds the uses that wait for a change of the index. More are dropped.
const usesLimit = 1 << 14

// Minute is the time, as the index keeps it.
func Minute() uint32 { return index.MinutesOf(time.Now()) }

// Used notes that a match ended in block k.
func (r *Recency) Used(k kv.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.uses) < usesLimit {
		r.uses = append(r.uses, use{k, Minute()})
	}
}

// None reports whether no use waits.
func (r *Recency) None() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.uses) == 0
}

// take hands out the uses that wait.
func (r *Recency) take() []use {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.uses
	r.uses = nil
	return out
}

// putBack has the uses wait that take handed out.
func (r *Recency) putBack(uses []use) {
	if len(uses) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	uses = append(uses, r.uses...)
	r.uses = uses[:min(len(uses), usesLimit)]
}
