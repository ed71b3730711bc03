package main

import (
	"bytes"
	"sort"

	"github.com/dormousekv/dormouse/kv"
)

// demand is what must be found in a store, and what must not be.
type demand struct {
	Least []int // by chat: tokens that must be found
	Most  []int // that may be
	Why   []int // by chat: the id of the put that demands Least
	Whose []int // by chat: the id of the deletion that allows no more than Most; 0: no more was ever put
	Refs  []refDemand
	Notes []noteDemand
	Weak  bool // the power was lost: a ref may have outlived what it names
}

// refDemand is what must hold of the ref of that name.
type refDemand struct {
	Name string
	ID   int // of the operation that demands it
	Gone bool
	Back bool // Gone, because it was deleted: finding it is a resurrection

	Chat, N  int
	Pinned   bool
	Priority uint8
	Expires  bool
	Meta     []byte
}

// metaOf is the metadata of the ref, or the value of the note, that operation id sets.
func metaOf(id, n int) []byte {
	var out []byte
	for h := uint64(id); len(out) < n; {
		h = mix(h, 11)
		out = append(out, byte(h), byte(h>>9), byte(h>>17))
	}
	return bytes.Clone(out[:n])
}

// takes is what a deletion leaves at least of the first n tokens of chat x; n if it does not touch them.
func (w *world) takes(o *op, x *chat, n int) int {
	switch o.kind {
	case opDelete:
		// The block with the last deleted token goes. Where another chat's tail with the same tokens has given way to that
		// block, as tails do, its rows go with it.
		c := w.chats[o.chat]
		if w.common[c.id][x.id] < min(o.n, n) {
			return n
		}
		if x.stateful() && n < o.n { // a state keeps its tail
			return n
		}
		return min(n, c.blockStart(o.n-1))
	case opScope:
		if x.p.Scope == o.name {
			return min(n, x.p.ScopeStart)
		}
	case opRetire:
		if w.chats[o.chat].model == x.model {
			return 0
		}
	}
	return n
}

// limit is how many tokens of chat x a deletion leaves at most.
func (w *world) limit(o *op, x *chat) int {
	n := len(x.p.Tokens)
	switch {
	case o.kind == opDelete && w.common[o.chat][x.id] >= o.n:
		return o.n - 1
	case o.kind == opScope && x.p.Scope == o.name:
		return min(n, x.p.ScopeStart)
	case o.kind == opRetire && w.chats[o.chat].model == x.model:
		return 0
	}
	return n
}

// gives is how many tokens of chat x a put may have stored.
func (w *world) gives(o *op, x *chat) int {
	shared := w.common[o.chat][x.id]
	if o.n > shared && x.stateful() {
		return 0 // its state is of other tokens
	}
	return min(o.n, shared)
}

// demand computes what must be found after a life. evicts: what nothing pins may have been evicted.
func (h *history) demand(w *world, evicts bool) demand {
	var puts, deletes []*op
	for _, o := range h.ops {
		switch o.kind {
		case opPut:
			puts = append(puts, o)
		case opDelete, opScope, opRetire:
			deletes = append(deletes, o)
		}
	}
	d := demand{Least: make([]int, chatCount), Most: make([]int, chatCount), Why: make([]int, chatCount), Whose: make([]int, chatCount)}
	for x, c := range w.chats {
		d.Most[x], d.Whose[x] = h.most(w, c, puts, deletes)
		if !evicts {
			d.Least[x], d.Why[x] = h.least(w, c, puts, deletes)
		}
	}
	d.Refs = h.refs(w, deletes, evicts)
	d.Notes = h.notes(w, deletes)
	for _, o := range h.ops {
		d.Weak = d.Weak || o.lost
	}
	return d
}

// least is what must be found of a chat: of each acknowledged put, what no deletion can have taken since it began.
func (h *history) least(w *world, c *chat, puts, deletes []*op) (best, why int) {
	for _, p := range puts {
		if p.chat != c.id || !p.acked || p.lost || p.n <= best {
			continue
		}
		if n := w.survives(c, p.n, p.begin, deletes); n > best {
			best, why = n, p.id
		}
	}
	return best, why
}

// survives is how many of the first n tokens of a chat no deletion can have taken that ended after begin.
func (w *world) survives(c *chat, n, begin int, deletes []*op) int {
	for again := true; again; {
		again = false
		for _, o := range deletes {
			if o.end <= begin {
				continue
			}
			if left := w.takes(o, c, n); left < n {
				n, again = left, true
				if c.stateful() { // there is no state where it was cut
					return 0
				}
			}
		}
	}
	if n = c.p.Clip(n); n < kv.OpeningTokens {
		return 0
	}
	return n
}

// most is what may be found of a chat: what puts may have stored, those that had ended before an acknowledged deletion began
// only up to where that leaves them.
func (h *history) most(w *world, c *chat, puts, deletes []*op) (most, whose int) {
	// latest[i] is what the puts give that ended at line i or later.
	type step struct{ end, gives int }
	var steps []step
	for _, p := range puts {
		if g := w.gives(p, c); g > 0 {
			steps = append(steps, step{p.end, g})
		}
	}
	sort.Slice(steps, func(i, j int) bool { return steps[i].end < steps[j].end })
	for i := len(steps) - 2; i >= 0; i-- {
		steps[i].gives = max(steps[i].gives, steps[i+1].gives)
	}
	since := func(line int) int {
		i := sort.Search(len(steps), func(i int) bool { return steps[i].end > line })
		if i == len(steps) {
			return 0
		}
		return steps[i].gives
	}
	most = since(0)
	for _, o := range deletes {
		if !o.acked {
			continue
		}
		if n := max(w.limit(o, c), since(o.begin)); n < most {
			most, whose = n, o.id
		}
	}
	return most, whose
}

// refs says what must hold of each name. The operations on one name come one after the other.
func (h *history) refs(w *world, deletes []*op, evicts bool) (out []refDemand) {
	type state struct {
		set   *op
		gone  *op
		known bool
	}
	names := map[string]*state{}
	var order []string
	for _, o := range h.ops {
		if o.kind != opRef && o.kind != opUnref {
			continue
		}
		s := names[o.name]
		if s == nil {
			s = &state{}
			names[o.name] = s
			order = append(order, o.name)
		}
		switch {
		case o.acked && !o.lost && o.kind == opRef:
			*s = state{set: o, known: true}
		case o.acked && !o.lost:
			*s = state{gone: o, known: true}
		case o.failed: // it changed nothing
		default:
			s.known = false
		}
	}
	for _, name := range order {
		s := names[name]
		switch {
		case !s.known:
			continue
		case s.set == nil:
			out = append(out, refDemand{Name: name, ID: s.gone.id, Gone: true, Back: true})
			continue
		case s.set.ttl == 1:
			out = append(out, refDemand{Name: name, ID: s.set.id, Gone: true})
			continue
		}
		c := w.chats[s.set.chat]
		maybe, gone := false, 0
		for _, o := range deletes {
			if o.end <= s.set.begin {
				continue
			}
			maybe = maybe || w.takes(o, c, s.set.n) < s.set.n
			if o.acked && o.begin > s.set.end && w.limit(o, c) < s.set.n && (s.set.pinned || !evicts) { // on an evicted block it stays
				gone = o.id
			}
		}
		switch {
		case gone > 0:
			out = append(out, refDemand{Name: name, ID: gone, Gone: true, Back: true})
		case !maybe:
			out = append(out, refDemand{
				Name: name, ID: s.set.id, Chat: s.set.chat, N: s.set.n, Pinned: s.set.pinned, Priority: s.set.priority,
				Expires: s.set.ttl > 0, Meta: metaOf(s.set.id, s.set.meta),
			})
		}
	}
	return out
}
