package lease

import (
	"slices"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Store is what prefixes are found and held in.
type Store struct {
	Search *prefix.Store
	Pins   *Pins
	// Committed returns when the change of the index that is under way has ended.
	Committed func()
}

// Held is a found prefix that nobody takes away. The zero Held holds nothing. Not safe for concurrent use, nor to be copied.
type Held struct {
	Found *prefix.Lookup // nil: nothing was looked for
	Rests []kv.Key       // pinned: the deepest block of the prefix, the block with its state, and the one that it was moved to

	leased bool
	lease  segments.Lease
	moved  bool
	rests  [3]kv.Key // memory of Rests
}

// Nothing makes h a lookup that finds nothing, for that reason.
func (h *Held) Nothing(s *Store, m prefix.Model, p *kv.Prompt, why kv.Reason) {
	h.Found = s.Search.Lookup(m, p, 0, false)
	h.Found.Reason = why
	h.Rests, h.moved = h.rests[:0], false
}

// Find looks for a prefix ([prefix.Store.Lookup]) and holds it. Where nothing is found, nothing is held: it would keep bytes of what an
// extension evicts. The error is one of the index; then h is as after Nothing.
func (h *Held) Find(s *Store, m prefix.Model, p *kv.Prompt, limit int, exact bool) error {
	h.Found = s.Search.Lookup(m, p, limit, exact)
	h.moved = false
	for {
		h.acquire(s)
		h.Rests = h.rests[:0]
		since := s.Pins.left.Load()
		if err := h.Found.Find(); err != nil {
			h.release()
			h.Found.Reset()
			return err
		}
		h.Rests = h.Found.AppendRests(h.Rests)
		if len(h.Rests) == 0 {
			h.release()
			return nil
		}
		hits := h.Found.Hits
		if h.pin(s, since, !exact || hits[len(hits)-1].Key == h.Rests[0]) { // a put may look at a block behind that, which can be evicted
			return nil
		}
		h.release()
		s.Committed() // its end is being evicted, or was: when that is done, look again without it
	}
}

// pin pins the blocks that the prefix rests on, and says so to the lease if they are all that is looked at. It fails if one is on its way out,
// or if something of it, a state perhaps, went since Pins counted since: then nobody had it pinned. A deletion that comes later sees the pins,
// and has the lease keep everything again.
func (h *Held) pin(s *Store, since uint64, all bool) bool {
	if !s.Pins.Pin(h.Rests...) {
		return false
	}
	if all {
		h.lease.Pinned()
	}
	if s.Pins.left.Load() == since {
		return true
	}
	v := s.Search.Index.View()
	defer v.Release()
	for _, k := range h.Rests {
		if ok, err := h.Found.StillIn(v, k); err != nil || !ok {
			s.Pins.Unpin(h.Rests...)
			return false
		}
	}
	return true
}

// MoveTo makes h rest on block k, if that is not on its way out, in place of the one that it was moved to before, and no more on those that
// left. What else was found it keeps: its rows may be asked for again.
func (h *Held) MoveTo(p *Pins, k kv.Key, left []kv.Key) {
	if !p.Pin(k) {
		return
	}
	n := len(h.Rests)
	kept := h.rests[:0]
	for i, r := range h.Rests {
		if h.moved && i == n-1 || slices.Contains(left, r) {
			p.Unpin(r)
		} else {
			kept = append(kept, r)
		}
	}
	h.Rests, h.moved = append(kept, k), true
}

// Drop ends it. pins is nil if the store is closed.
func (h *Held) Drop(pins *Pins) {
	h.release()
	if pins != nil {
		pins.Unpin(h.Rests...)
	}
	h.Rests = nil
	if h.Found != nil {
		h.Found.Free()
		h.Found = nil
	}
}

func (h *Held) acquire(s *Store) {
	s.Search.Segments.AcquireIn(&h.lease)
	h.leased = true
}

func (h *Held) release() {
	if h.leased {
		h.lease.Release()
		h.leased = false
	}
}

// Record is a lease on one stored record, which was looked up before: it fails, with ok false, if the record does not lie there any more.
func (s *Store) Record(l *segments.Lease, k kv.Key, group uint8, at index.Loc) (ok bool, err error) {
	s.Search.Segments.AcquireIn(l)
	v := s.Search.Index.View()
	defer v.Release()
	x, ok, err := v.Get(k, group)
	return ok && x.Loc == at, err
}
