package db

import "slices"

// shorterTail ends the hits in a stored tail, where that lets more of the prefix be used: the longer block that took the
// tail's place in the chain may have been put without the window rows, or the state, that the tail has.
func (l *lookup) shorterTail() error {
	if err := l.settle(); err != nil || !l.m.windows() {
		return err
	}
	all, best, why := l.hits, l.tokens, l.reason
	var found *hit
	n := 0 // hits of the best prefix
	for i := len(all) - 1; i >= 0 && all[i].end > best; i-- {
		_, end := l.chain.Block(i)
		tails, err := forerunners(&l.view, l.e.hasher, l.p, &l.chain, i, end)
		if err != nil {
			return err
		}
		own := all[i]
		own.groups = slices.Clone(own.groups) // the tails use its memory
		l.hits = all[:i+1]
		for _, tail := range slices.Backward(tails) {
			if tail.end <= best || l.exact && tail.end < l.limit { // a put wants the rows right before its own
				break
			}
			if tail.key == own.key {
				continue
			}
			h := &l.hits[i]
			h.key, h.end, h.tokens, h.groups = tail.key, min(tail.end, own.end), tail.end-h.start, nil
			if err := l.resolve(i); err != nil {
				return err
			}
			if err := l.settle(); err != nil {
				return err
			}
			if l.tokens > best {
				best, n = l.tokens, i+1
				keep := *h
				keep.groups = slices.Clone(h.groups)
				found = &keep
			}
		}
		all[i] = own
	}
	l.hits = all
	if found != nil {
		l.hits = all[:n]
		l.hits[n-1] = *found
		l.ends = why
	}
	return l.settle()
}
