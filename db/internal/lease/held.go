package lease

import (
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
	Rests []kv.Key       // pinned: the deepest block of the prefix, the block with its state, and the one that it was moved to, as they were found

	leased bool
	lease  segments.Lease
	moved  bool
	rests  [3]kv.Key // memory of Rests
	pins   [3]Pin    // of Rests, one each
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
			if !exact || len(h.Found.Hits) == 0 { // a put reads rows that are of no use to a match, too
				h.release()
			}
			return nil
		}
		if h.pin(s, since, !exact) { // a put looks at blocks behind that, too, and not for long
			return nil
		}
		h.release()
		s.Committed() // its end is being evicted, or was: when that is done, look again without it
	}
}

// pin pins the blocks that the prefix rests on. If it is for long, they are all that is looked at, and the lease is told so. It fails if one
// is on its way out, or if something of it, a state perhaps, went since Pins counted since: then nobody had it pinned. A deletion that comes later sees the pins.
func (h *Held) pin(s *Store, since uint64, long bool) bool {
	for i, k := range h.Rests {
		h.pins[i].sees = long
		if !s.Pins.Pin(&h.pins[i], k) {
			h.unpin(s.Pins)
			return false
		}
	}
	if long {
		h.lease.Pinned()
	}
	if s.Pins.left.Load() == since {
		return true
	}
	v := s.Search.Index.View()
	defer v.Release()
	for _, k := range h.Rests {
		if ok, err := h.Found.StillIn(v, k); err != nil || !ok {
			h.unpin(s.Pins)
			return false
		}
	}
	return true
}

// MoveTo makes h rest on block k, too, if that is not on its way out, in place of the one that it was moved to before. What was found it
// keeps: its rows may be asked for again.
func (h *Held) MoveTo(p *Pins, k kv.Key) {
	n := len(h.Rests)
	if h.moved {
		n--
	}
	if !h.moved {
		h.pins[n].sees = false // only what was found is read
	}
	if p.Pin(&h.pins[n], k) {
		h.Rests, h.moved = append(h.Rests[:n], k), true
	}
}

// Resolve asks where the records lie of what was found up to position p, as [prefix.Lookup.ResolveTo] does. A block that was deleted since is
// gone, also where it was stored anew: h does not rest on that.
func (h *Held) Resolve(pins *Pins, p int) error {
	return h.Found.ResolveHeld(p, func() kv.Key { return pins.at(&h.pins[0]) })
}

// Pins are what h rests with.
func (h *Held) Pins() []*Pin { return []*Pin{&h.pins[0], &h.pins[1], &h.pins[2]} }

func (h *Held) unpin(p *Pins) { p.Unpin(&h.pins[0], &h.pins[1], &h.pins[2]) }

// Drop ends it. pins is nil if the store is closed.
func (h *Held) Drop(pins *Pins) {
	h.release()
	if pins != nil {
		h.unpin(pins)
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
