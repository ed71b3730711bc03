package prefix

import "slices"

// shorterPartial ends the hits in a partial block, where that lets more of the prefix be used: the longer block that took its place in the
// chain may have been put without the window rows that the partial one has.
func (l *Lookup) shorterPartial() error {
	if err := l.Measure(); err != nil || !l.model.windows() {
		return err
	}
	all, best, why := l.Hits, l.Tokens, l.Reason
	var found *Hit
	n := 0 // hits of the best prefix
	for i := len(all) - 1; i >= 0 && all[i].End > best; i-- {
		_, end := l.chain.Block(i)
		partial, err := StoredPrefixes(&l.view, l.store.Hasher, l.prompt, &l.chain, i, end)
		if err != nil {
			return err
		}
		own := all[i]
		own.Groups = slices.Clone(own.Groups) // the partial blocks use its memory
		l.Hits = all[:i+1]
		for _, short := range slices.Backward(partial) {
			if short.End <= best || l.exact && short.End < l.limit { // a put wants the rows right before its own
				break
			}
			if short.Key == own.Key {
				continue
			}
			h := &l.Hits[i]
			h.Key, h.End, h.Tokens, h.Groups = short.Key, min(short.End, own.End), short.End-h.Start, nil
			if err := l.Resolve(i); err != nil {
				return err
			}
			if err := l.Measure(); err != nil {
				return err
			}
			if l.Tokens > best {
				best, n = l.Tokens, i+1
				keep := *h
				keep.Groups = slices.Clone(h.Groups)
				found = &keep
			}
		}
		all[i] = own
	}
	l.Hits = all
	if found != nil {
		l.Hits = all[:n]
		l.Hits[n-1] = *found
		l.ends = why
	}
	return l.Measure()
}
