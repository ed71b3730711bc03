package lease

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// Pins says which blocks something rests on, and which are on their way out. A block that is pinned keeps every block before it. Safe for
// concurrent use.
type Pins struct {
	mu      lock.Mutex[lock.Pins]
	pinned  map[kv.Key]int // guarded by mu: blocks that an open match or put rests on, by how many
	leaving map[kv.Key]int // guarded by mu: blocks that are being evicted, or that a longer one takes the place of, by how many
	left    atomic.Uint64  // counts the ends of that, and deletions
}

// NewPins returns those of a store in which there is no match yet.
func NewPins() *Pins { return &Pins{pinned: map[kv.Key]int{}, leaving: map[kv.Key]int{}} }

// Pin keeps blocks, and with them every block before them, from being evicted. It fails, and pins none, if one is on its way out.
func (p *Pins) Pin(keys ...kv.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		if _, out := p.leaving[k]; out {
			return false
		}
	}
	for _, k := range keys {
		p.pinned[k]++
	}
	return true
}

// Unpin takes back what Pin did.
func (p *Pins) Unpin(keys ...kv.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		if p.pinned[k]--; p.pinned[k] <= 0 {
			delete(p.pinned, k)
		}
	}
}

// Pinned reports whether a block is pinned more than own times.
func (p *Pins) Pinned(k kv.Key, own int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pinned[k] > own
}

// Leave marks a block that is about to go, so that nothing comes to rest on it any more, until End. It fails if the block is pinned more
// than own times.
func (p *Pins) Leave(k kv.Key, own int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned[k] > own {
		return false
	}
	p.leaving[k]++
	return true
}

// End says that blocks which were about to go are gone, or stay.
func (p *Pins) End(keys []kv.Key) {
	if len(keys) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		if p.leaving[k]--; p.leaving[k] <= 0 {
			delete(p.leaving, k)
		}
	}
	p.left.Add(1)
}

// Removed says that blocks were deleted, whoever rests on them, and reports whether anybody does.
func (p *Pins) Removed(keys func(yield func(kv.Key) bool)) (pinned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range keys {
		pinned = pinned || p.pinned[k] > 0
	}
	p.left.Add(1)
	return pinned
}

// Counts is how many blocks are pinned, and how many are about to go.
func (p *Pins) Counts() (pinned, leaving int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pinned), len(p.leaving)
}
