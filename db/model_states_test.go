package db_test

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// stateOnWay is a block with a state on the way of a prompt.
type stateOnWay struct {
	key  kv.Key
	b    *mapBlock
	next int // the block of the prompt's chain in which lies what goes on from there
}

// turns puts beginnings of a prompt, each with its state, and then the prompt, and keeps some of the states.
func (d *driver) turns(p kv.Prompt) {
	ends := []int{len(p.Tokens)}
	for range 4 {
		n := 1 + d.r.IntN(len(p.Tokens))
		if d.r.IntN(2) == 0 { // where a block ends
			n = max(1, n/16*16)
		}
		if n = p.Clip(n); n > 0 {
			ends = append(ends, n)
		}
	}
	slices.Sort(ends)
	keep := 2 + d.r.IntN(2)
	d.note("of the states at %v %d are kept", ends, keep)
	for _, n := range ends {
		q := p.Prefix(n)
		d.putRows(2, q, storetest.Filled(d.models[2].Descriptor(), &q, 0, n), 0, keep)
	}
}

// thinned notes which states a put of p with KeepStates has left: of those on its way the first, the last keep-1, and those that
// somebody else wants. A tail goes with its state.
func (d *driver) thinned(mi int, p kv.Prompt, keep int, actual map[kv.Key][]db.Block) {
	keys, blocks := d.chain(mi, p)
	own := map[kv.Key]bool{} // the blocks on the way
	var all []stateOnWay
	for i := range keys {
		for k, b := range d.blocks {
			if b.model != mi || b.parent != blocks[i].parent || b.scope != blocks[i].scope || b.end > blocks[i].end || shared(b, &p) != b.end {
				continue
			}
			if own[k] = true; !b.state {
				continue
			}
			next := i
			if k == keys[i] {
				next++
			}
			all = append(all, stateOnWay{k, b, next})
		}
	}
	slices.SortFunc(all, func(a, b stateOnWay) int { return cmp.Compare(a.b.end, b.b.end) })
	var gone []stateOnWay
	for i, x := range all {
		goes := i > 0 && i <= len(all)-keep && !d.wanted(p, x, blocks, own)
		left := slices.ContainsFunc(actual[x.key], func(r db.Block) bool { return r.Group == 1 })
		if goes && left && d.mayRest(x.b) {
			continue
		}
		if left == goes {
			d.fatalf("of %d states on the way of %d tokens %d are kept: the one at %d is there: %t", len(all), len(p.Tokens), keep, x.b.end, left)
		}
		if goes {
			gone = append(gone, x)
		}
	}
	for _, x := range gone {
		x.b.state = false
		if _, ok := actual[x.key]; !ok && slices.Contains(keys, x.key) {
			d.fatalf("the block [%d, %d) went with its state", x.b.start, x.b.end)
		} else if !ok {
			delete(d.blocks, x.key)
		}
	}
}

// mayRest reports whether an open match may rest on a block because that has the match's last token, beside the block with its state. Of
// several such blocks it is the store's choice.
func (d *driver) mayRest(b *mapBlock) bool {
	return slices.ContainsFunc(d.held, func(h heldMatch) bool {
		if h.model != b.model || h.rests == (kv.Key{}) || h.end <= b.start || shared(b, &h.p) < h.end {
			return false
		}
		_, blocks := d.chain(h.model, h.p.Prefix(h.end))
		last := blocks[len(blocks)-1]
		return last.parent == b.parent && last.scope == b.scope
	})
}

// wanted reports whether somebody else than p wants a state on its way: it is shared by scopes, a ref or a match rests on it, or another
// prompt goes on from it.
func (d *driver) wanted(p kv.Prompt, x stateOnWay, blocks []*mapBlock, own map[kv.Key]bool) bool {
	if p.Scope != "" && x.b.end <= p.ScopeStart || slices.ContainsFunc(d.held, func(h heldMatch) bool { return h.rests == x.key }) {
		return true
	}
	refs, err := db.Collect(d.s.Refs())
	d.must(err)
	for _, r := range refs {
		if r.Block == x.key {
			return true
		}
	}
	full := x.next < len(blocks) && blocks[x.next].parent == x.key
	for k, b := range d.blocks {
		if b.parent == x.key && !(full && own[k]) {
			return true
		}
		if !full && !own[k] && b.parent == x.b.parent && b.scope == x.b.scope && b.model == x.b.model && shared(b, &p) >= x.b.end {
			return true
		}
	}
	return false
}
