package db_test

import (
	"slices"

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
