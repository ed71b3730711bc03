package db_test

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// expected is the longest usable prefix, worked out from the map by brute force.
func (d *driver) expected(mi int, p kv.Prompt, limit int) int {
	return max(d.expectedOf(mi, p, limit), d.expectedTails(mi, p, limit))
}

// expectedTails is the longest usable prefix that ends in a stored tail, where longer blocks lack window rows.
func (d *driver) expectedTails(mi int, p kv.Prompt, limit int) (best int) {
	if mi != 1 {
		return 0
	}
	keys, blocks := d.chain(mi, p)
	desc := d.models[mi].Descriptor()
	var path []piece
	for i, k := range keys {
		for _, b := range d.blocks {
			if b.parent == blocks[i].parent && b.scope == blocks[i].scope && b.model == mi && b.adapters == blocks[i].adapters &&
				shared(b, &p) == b.end && b.end <= p.BlockCapacityEnd(i, desc.BlockTokens) {
				best = max(best, d.usable(mi, p, min(limit, b.end), desc, append(slices.Clone(path), piece{b, b.end})))
			}
		}
		b := d.blocks[k]
		if b == nil {
			break
		}
		path = append(path, piece{b, b.end})
	}
	return best
}

func (d *driver) expectedOf(mi int, p kv.Prompt, limit int) int {
	keys, blocks := d.chain(mi, p)
	desc := d.models[mi].Descriptor()
	var path []piece
	for i, k := range keys {
		tail := mi == 1 && i == len(keys)-1 && blocks[i].end-blocks[i].start < desc.BlockTokens
		if b := d.blocks[k]; b != nil && !tail {
			path = append(path, piece{b, b.end})
			continue
		}
		// Of the blocks that share most of the tokens that are asked for, any may be taken: the one that serves best is.
		longest := blocks[i].start
		var ties []*mapBlock
		for _, b := range d.blocks {
			if b.parent != blocks[i].parent || b.scope != blocks[i].scope || b.model != mi || b.adapters != blocks[i].adapters {
				continue
			}
			if end := min(limit, p.Clip(min(shared(b, &p), p.BlockCapacityEnd(i, desc.BlockTokens)))); end > longest {
				longest, ties = end, []*mapBlock{b}
			} else if end == longest && end > b.start {
				ties = append(ties, b)
			}
		}
		best := 0
		for _, b := range ties {
			best = max(best, d.usable(mi, p, limit, desc, append(slices.Clone(path), piece{b, longest})))
		}
		if len(ties) > 0 {
			return best
		}
		break
	}
	return d.usable(mi, p, limit, desc, path)
}

type piece struct {
	b   *mapBlock
	end int
}

// usable is the longest prefix whose rows, window rows and state are all in path.
func (d *driver) usable(mi int, p kv.Prompt, limit int, desc kv.Descriptor, path []piece) int {
	for n := limit; n >= kv.OpeningTokens; n-- {
		if p.Clip(n) != n || len(path) == 0 || path[len(path)-1].end < n {
			continue
		}
		ok := true
		switch mi {
		case 1:
			for pos := max(0, n-desc.Groups[1].Window); pos < n && ok; pos++ {
				covered := false
				for _, x := range path {
					covered = covered || (x.b.start <= pos && pos < x.end && x.b.winFrom <= pos && pos < x.b.winTo)
				}
				ok = covered
			}
		case 2:
			k, _ := d.chain(mi, p.Prefix(n))
			b := d.blocks[k[len(k)-1]]
			ok = b != nil && b.state
		}
		if ok {
			return n
		}
	}
	return 0
}

// shared is the position up to which a block agrees with p, spans in one piece.
func shared(b *mapBlock, p *kv.Prompt) int {
	end := b.start
	spanAt := func(spans []kv.Span, pos int) kv.Span {
		for _, s := range spans {
			if s.Start <= pos && pos < s.End() {
				return s
			}
		}
		return kv.Span{}
	}
	for end < b.end && end < len(p.Tokens) && b.tokens[end-b.start] == p.Tokens[end] && spanAt(b.spans, end) == spanAt(p.Spans, end) {
		end++
	}
	return end
}

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
