package lease

import (
	"slices"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// Pins says which blocks something rests on, and which are on their way out. A block that is pinned keeps every block before it. Safe for
// concurrent use.
type Pins struct {
	mu      lock.Mutex[lock.Pins]
	pinned  map[kv.Key]*Pin // guarded by mu: blocks that an open match or put rests on, the first of its pins each
	leaving map[kv.Key]int  // guarded by mu: blocks that are being evicted, or that a longer one takes the place of, by how many
	left    atomic.Uint64   // counts the ends of that, and deletions
}

// Pin rests on one block at a time, as long as that is stored, and then on the one before it. The zero Pin rests on nothing. It must not be
// copied while it rests on something.
type Pin struct {
	sees       bool   // a match has found the block: it may read all that is stored up to there
	key        kv.Key // guarded by Pins.mu, like all below; zero: it rests on nothing
	next, prev *Pin   // of the same block
}

// NewPins returns those of a store in which there is no match yet.
func NewPins() *Pins { return &Pins{pinned: map[kv.Key]*Pin{}, leaving: map[kv.Key]int{}} }

// Pin has x rest on a block, in place of where it rested before, and so keeps that block and every one before it from being evicted. It fails,
// and x stays where it is, if the block is on its way out.
func (p *Pins) Pin(x *Pin, k kv.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, out := p.leaving[k]; out {
		return false
	}
	p.move(x, k)
	return true
}

// Unpin has pins rest on nothing.
func (p *Pins) Unpin(pins ...*Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range pins {
		p.move(x, kv.Key{})
	}
}

// move has x rest on k, or on nothing where that is zero. The caller holds mu.
func (p *Pins) move(x *Pin, k kv.Key) {
	if x.next != nil {
		x.next.prev = x.prev
	}
	switch {
	case x.prev != nil:
		x.prev.next = x.next
	case x.next != nil:
		p.pinned[x.key] = x.next
	case !x.key.IsZero():
		delete(p.pinned, x.key)
	}
	x.key, x.prev, x.next = k, nil, nil
	if k.IsZero() {
		return
	}
	if x.next = p.pinned[k]; x.next != nil {
		x.next.prev = x
	}
	p.pinned[k] = x
}

// at is where x rests now; zero if on nothing.
func (p *Pins) at(x *Pin) kv.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return x.key
}

// Pinned reports whether a block is pinned by others than own.
func (p *Pins) Pinned(k kv.Key, own ...*Pin) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pinnedBy(k, own)
}

func (p *Pins) pinnedBy(k kv.Key, own []*Pin) bool {
	for x := p.pinned[k]; x != nil; x = x.next {
		if !slices.Contains(own, x) {
			return true
		}
	}
	return false
}

// Seen reports whether a match rests on a block.
func (p *Pins) Seen(k kv.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := p.pinned[k]; x != nil; x = x.next {
		if x.sees {
			return true
		}
	}
	return false
}

// Leave marks a block that is about to go, so that nothing comes to rest on it any more, until End. It fails if the block is pinned by others
// than own.
func (p *Pins) Leave(k kv.Key, own ...*Pin) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinnedBy(k, own) {
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

// Removed says that a block was taken out, whoever rests on it: what did rests on its parent from now on, on nothing if that is zero. seen
// says that a match may still read it. Of several blocks the deepest come first.
func (p *Pins) Removed(k, parent kv.Key) (seen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := p.pinned[k]; x != nil; x = p.pinned[k] {
		seen = seen || x.sees
		p.move(x, parent)
	}
	p.left.Add(1)
	return seen
}

// Counts is how many blocks are pinned, and how many are about to go.
func (p *Pins) Counts() (pinned, leaving int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pinned), len(p.leaving)
}
