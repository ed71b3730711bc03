package inplace

import (
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/dormousekv/dormouse/kv"
)

// LockFree is the number of cells up to which a ring has no lock. Above, calls that look through all cells or turns share one.
const LockFree = 1024

// Ring is rows of K and V in cells, and the turns that they form. A cell is claimed, written by whoever claimed it, and committed with
// others as one turn, which is whole from then on and not written to any more. Room is made by evicting the oldest turn that nobody has
// pinned. All methods are safe for concurrent use.
//
// Head, tail and turn count are numbers of 32 bits in the file, advanced by compare-and-swap: head counts the cells that were looked at
// for room, round and round; the turn count numbers the turns; those before tail are gone.
type Ring struct {
	name  string // of the file; empty: none
	shape Shape
	mem   []byte
	close func() error
	lock  *sync.RWMutex // nil: none is needed

	free  atomic.Int64           // cells that can be claimed
	turns []atomic.Pointer[Turn] // by slot; nil: none is whole
	pins  []atomic.Int32         // by slot; below 0: it is being evicted
}

// Turn is rows that were committed together. It does not change.
type Turn struct {
	Generation uint32 // counts turns
	First      int    // position of its first row
	Key        Key
	Cells      []uint32 // of its rows, in order of position; not to be changed
	slot       int
}

// End is the position after its last row.
func (t *Turn) End() int { return t.First + len(t.Cells) }

func ringOn(name string, mem []byte, s Shape) *Ring {
	r := &Ring{name: name, shape: s, mem: mem, turns: make([]atomic.Pointer[Turn], s.Turns), pins: make([]atomic.Int32, s.Turns)}
	if s.Cells > LockFree {
		r.lock = new(sync.RWMutex)
	}
	return r
}

// Close unmaps the ring. Turns stay in its file, and what is not committed is gone. Nothing of the ring's memory may be used afterwards.
func (r *Ring) Close() error { return r.close() }

// Shape is the ring's.
func (r *Ring) Shape() Shape { return r.shape }

// K is the plane of a layer's K: cell c's row is at [c*RowBytes, (c+1)*RowBytes). Only who claimed a cell may write its row, and only before
// it is committed; a turn's rows may be read by who has pinned it.
func (r *Ring) K(layer int) []byte { return r.shape.plane(r.mem, layer, 0) }

// V is the plane of a layer's V.
func (r *Ring) V(layer int) []byte { return r.shape.plane(r.mem, layer, 1) }

// Free is the number of cells that a claim can have without evicting a turn.
func (r *Ring) Free() int { return int(r.free.Load()) }

func (r *Ring) head() *atomic.Uint32  { return word(r.mem, headAt) }
func (r *Ring) tail() *atomic.Uint32  { return word(r.mem, tailAt) }
func (r *Ring) count() *atomic.Uint32 { return word(r.mem, countAt) }

func (r *Ring) entry(slot int) entry                { return entryOf(r.mem, slot) }
func (r *Ring) owner(cell uint32) *atomic.Uint32    { return r.shape.owner(r.mem, cell) }
func (r *Ring) position(cell uint32) *atomic.Uint32 { return r.shape.position(r.mem, cell) }

// advance adds one to a number by compare-and-swap and returns what it was.
func advance(n *atomic.Uint32) uint32 {
	for {
		if old := n.Load(); n.CompareAndSwap(old, old+1) {
			return old
		}
	}
}

func (r *Ring) write() func() {
	if r.lock == nil {
		return func() {}
	}
	r.lock.Lock()
	return r.lock.Unlock
}

func (r *Ring) read() func() {
	if r.lock == nil {
		return func() {}
	}
	r.lock.RLock()
	return r.lock.RUnlock
}

// Claim takes n cells, whose rows are zero. It evicts the oldest turns that are not pinned until there is room; kv.ErrFull if there is none.
// Then nothing is evicted, unless others claim or pin meanwhile.
func (r *Ring) Claim(n int) ([]uint32, error) {
	defer r.write()()
	room := func() int64 {
		all := r.free.Load()
		for slot := range r.turns {
			if t := r.turns[slot].Load(); t != nil && r.pins[slot].Load() == 0 {
				all += int64(len(t.Cells))
			}
		}
		return all
	}
	for {
		free := r.free.Load()
		if free >= int64(n) {
			if r.free.CompareAndSwap(free, free-int64(n)) { // so many can be found
				break
			}
			continue
		}
		if room() < int64(n) || !r.evict() {
			if free := r.free.Load(); free >= int64(n) { // someone else gave them back
				continue
			}
			return nil, fmt.Errorf("%w: %d rows, %d of %d cells are free", kv.ErrFull, n, r.free.Load(), r.shape.Cells)
		}
	}
	cells := make([]uint32, 0, n)
	for len(cells) < n {
		c := advance(r.head()) % uint32(r.shape.Cells)
		if r.owner(c).CompareAndSwap(ownerNone, ownerOpen) {
			cells = append(cells, c)
		}
	}
	return cells, nil
}

// Release gives claimed cells back. Their rows are zeroed: nothing of them stays in the file.
func (r *Ring) Release(cells []uint32) {
	defer r.write()()
	r.release(cells)
}

func (r *Ring) release(cells []uint32) {
	for _, c := range cells {
		for l := range r.shape.Layers {
			clear(r.row(r.K(l), c))
			clear(r.row(r.V(l), c))
		}
		r.owner(c).Store(ownerNone)
	}
	r.free.Add(int64(len(cells)))
}

func (r *Ring) row(plane []byte, cell uint32) []byte {
	at := int(cell) * r.shape.RowBytes
	return plane[at : at+r.shape.RowBytes]
}

// Commit makes a turn of claimed cells, whose rows have the positions from first on, and returns it pinned. The cells are the ring's from
// then on: they come back with Dissolve, or are evicted once nobody pins the turn. It returns nil where the ring has no room for another
// turn: then the cells stay the caller's. Once it has returned, a process that is killed leaves the turn behind.
func (r *Ring) Commit(key Key, first int, cells []uint32) *Turn {
	defer r.write()()
	sum := r.sum(cells)
	for range r.shape.Turns {
		last := r.count().Load()
		generation := last + 1
		slot := int(generation % uint32(r.shape.Turns))
		e := r.entry(slot)
		if !e.state().CompareAndSwap(turnFree, turnBusy) { // an old turn lives on there: its number is passed over
			r.count().CompareAndSwap(last, generation)
			continue
		}
		if !r.count().CompareAndSwap(last, generation) {
			e.state().Store(turnFree)
			continue
		}
		t := &Turn{generation, first, key, slices.Clone(cells), slot}
		e.set(generation, first, len(cells), key, sum)
		for i, c := range cells {
			r.position(c).Store(uint32(first + i))
			r.owner(c).Store(ownerTurns + uint32(slot))
		}
		r.pins[slot].Add(1)
		r.turns[slot].Store(t)
		e.state().Store(turnWhole)
		r.passTail()
		return t
	}
	return nil
}

// sum is the checksum of rows: of all planes, in order of cells.
func (r *Ring) sum(cells []uint32) uint64 {
	d := xxhash.New()
	for l := range r.shape.Layers {
		for _, plane := range [][]byte{r.K(l), r.V(l)} {
			for _, c := range cells {
				d.Write(r.row(plane, c))
			}
		}
	}
	return d.Sum64()
}

// Turns lists the turns that are whole, from the oldest. Nobody is kept from evicting them meanwhile: Pin one before you read it.
func (r *Ring) Turns() iter.Seq[*Turn] {
	return func(yield func(*Turn) bool) {
		done := r.read()
		var all []*Turn
		for slot := range r.turns {
			if t := r.turns[slot].Load(); t != nil {
				all = append(all, t)
			}
		}
		done()
		slices.SortFunc(all, func(a, b *Turn) int { return int(int32(a.Generation - b.Generation)) })
		for _, t := range all {
			if !yield(t) {
				return
			}
		}
	}
}

// Pin keeps a turn from being evicted until Unpin. It is false where the turn is gone.
func (r *Ring) Pin(t *Turn) bool {
	for {
		pinned, again := r.tryPin(t)
		if !again {
			return pinned
		}
		runtime.Gosched() // not under the lock: whoever has the turn now waits for it, perhaps
	}
}

func (r *Ring) tryPin(t *Turn) (pinned, again bool) {
	defer r.read()()
	p := r.pins[t.slot].Load()
	switch {
	case r.turns[t.slot].Load() != t:
		return false, false
	case p < 0 || !r.pins[t.slot].CompareAndSwap(p, p+1):
		return false, true
	case r.turns[t.slot].Load() != t:
		r.pins[t.slot].Add(-1)
		return false, false
	}
	return true, false
}

// Unpin takes a pin back.
func (r *Ring) Unpin(t *Turn) { r.pins[t.slot].Add(-1) }

// Dissolve gives the cells of a turn back to the caller, who has pinned it, as if they had just been claimed and written. It waits until
// nobody else pins it.
func (r *Ring) Dissolve(t *Turn) {
	for !r.pins[t.slot].CompareAndSwap(1, -1) {
		runtime.Gosched()
	}
	defer r.write()()
	r.open(t)
}

// open takes a turn apart whose pins are at -1. Its cells are open then.
func (r *Ring) open(t *Turn) {
	e := r.entry(t.slot)
	e.state().Store(turnBusy)
	e.blank()
	r.turns[t.slot].Store(nil)
	for _, c := range t.Cells {
		r.owner(c).Store(ownerOpen)
	}
	r.pins[t.slot].Add(1)
	e.state().Store(turnFree)
	r.passTail()
}

// Clear evicts all turns that nobody pins, and returns how many rows that were. Whoever deletes what they are of calls it: until then, or
// until their room is needed, they stay in the file.
func (r *Ring) Clear() (rows int) {
	defer r.write()()
	before := r.free.Load()
	for r.evict() {
	}
	return int(r.free.Load() - before)
}

// evict frees the oldest turn that nobody pins.
func (r *Ring) evict() bool {
	for {
		var oldest *Turn
		for slot := range r.turns {
			if t := r.turns[slot].Load(); t != nil && r.pins[slot].Load() == 0 && (oldest == nil || before(t.Generation, oldest.Generation)) {
				oldest = t
			}
		}
		switch {
		case oldest == nil:
			return false
		case !r.pins[oldest.slot].CompareAndSwap(0, -1): // somebody was faster
			continue
		case r.turns[oldest.slot].Load() != oldest:
			r.pins[oldest.slot].Add(1)
			continue
		}
		r.open(oldest)
		r.release(oldest.Cells)
		return true
	}
}

// before orders generations, which begin again after 2^32.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// passTail moves the tail past generations that are gone.
func (r *Ring) passTail() {
	for {
		tail := r.tail().Load()
		oldest := r.count().Load() + 1
		for slot := range r.turns {
			t := r.turns[slot].Load()
			if t == nil && r.entry(slot).state().Load() != turnFree {
				return // whoever makes or ends this one does it
			}
			if t != nil && before(t.Generation, oldest) {
				oldest = t.Generation
			}
		}
		if !before(tail, oldest) || r.tail().CompareAndSwap(tail, oldest) {
			return
		}
	}
}
