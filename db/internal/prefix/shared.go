package prefix

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// sharedBlock adds the first rows of the stored block that shares most leading tokens with what follows the prompt's own blocks: K and V
// of a token depend on earlier tokens only.
func (l *Lookup) sharedBlock() error {
	i := len(l.Hits)
	if i >= l.chain.Len() || i > 0 && l.Hits[i-1].Groups != nil && l.Hits[i-1].Groups[0].Bad != nil {
		return nil
	}
	start, _ := l.chain.Block(i)
	if start >= l.limit {
		return nil
	}
	end := min(l.prompt.BlockCapacityEnd(i, l.model.Desc.BlockTokens), len(l.prompt.Tokens))
	l.ends.At = start
	l.hashes = l.store.Hasher.AppendTokenHashes(l.hashes[:0], l.prompt, start, end)
	hashes := l.hashes
	parent, scope := l.chain.Parent(i), l.chain.Scope(i)
	before, after, okB, okA, err := l.view.Neighbors(parent, scope, hashes)
	if err != nil {
		return err
	}
	best := Hit{Parent: parent, Scope: scope, Start: start, End: start}
	var bestEntry index.Entry
	try := func(k kv.Key, ok bool) error {
		if !ok {
			return nil
		}
		entry, ok, err := l.view.Get(k, 0)
		h := Hit{Key: k, Parent: parent, Scope: scope, Start: start, Tokens: int(entry.Tokens)}
		if err != nil || !ok || !l.same(&entry, &h) || entry.Flags&index.FlagDamaged != 0 {
			return err
		}
		shared, rerr := l.store.SharedTokens(l.prompt, entry)
		if rerr != nil {
			l.ends = ReasonOf(l.store.Report(k, 0, entry.Loc, rerr), start)
			return nil // a read error is only a miss
		}
		shared = min(shared, end-start) // behind end begins the prompt's own scope
		if shared < int(entry.Tokens) && start+shared < end && l.ends.Err == nil {
			l.ends = kv.Reason{Code: kv.Diverged, At: start + shared}
		}
		if start+shared > best.End {
			h.End = start + shared
			best, bestEntry = h, entry
		}
		return nil
	}
	if err := try(before, okB); err != nil {
		return err
	}
	if err := try(after, okA && (!okB || after != before)); err != nil {
		return err
	}
	if best.End-start >= index.MaxHashTokens {
		// Large blocks that agree as far as their order looks: compare the tokens of the rest.
		var ties []kv.Key
		if err := l.view.ChildrenLike(parent, scope, hashes[:index.MaxHashTokens*kv.TokenHashBytes], func(k kv.Key) bool {
			ties = append(ties, k)
			return len(ties) < maxTies
		}); err != nil {
			return err
		}
		for _, k := range ties {
			if err := try(k, k != before && k != after); err != nil {
				return err
			}
		}
	}
	if best.End == start {
		return nil
	}
	shared := best.End - start
	if shared == best.Tokens || best.End >= end {
		l.ends = kv.Reason{Code: kv.Ends, At: best.End}
	} else {
		l.ends = kv.Reason{Code: kv.Diverged, At: best.End}
	}
	best.End = min(best.End, l.limit)
	l.Hits = append(l.Hits, best)
	if err := l.resolveAs(i, &bestEntry); err != nil {
		return err
	}
	if l.model.windows() {
		return l.bestTie(i, hashes[:(best.End-start)*kv.TokenHashBytes])
	}
	return nil
}

// maxTies bounds the children that are compared with each other.
const maxTies = 64

// bestTie looks at the other blocks that share as many tokens as hit i gives. The one whose window rows let most of them be used takes
// its place.
func (l *Lookup) bestTie(i int, hashes []byte) error {
	if err := l.Measure(); err != nil || l.Tokens >= l.Hits[i].End {
		return err
	}
	first := l.Hits[i]
	var ties []kv.Key
	if err := l.view.ChildrenLike(first.Parent, first.Scope, hashes, func(k kv.Key) bool {
		if k != first.Key {
			ties = append(ties, k)
		}
		return len(ties) < maxTies
	}); err != nil {
		return err
	}
	best, bestTokens := first, l.Tokens
	best.Groups = append([]Group(nil), first.Groups...)
	for _, k := range ties {
		entry, ok, err := l.view.Get(k, 0)
		if err != nil {
			return err
		}
		h := first
		h.Key, h.Tokens, h.Groups = k, int(entry.Tokens), nil
		if !ok || !l.same(&entry, &h) || entry.Flags&index.FlagDamaged != 0 {
			continue
		}
		l.Hits[i] = h
		if err := l.resolveAs(i, &entry); err != nil {
			return err
		}
		if err := l.Measure(); err != nil {
			return err
		}
		if l.Tokens <= bestTokens {
			continue
		}
		// Hashes agree: do the tokens?
		if shared, err := l.store.SharedTokens(l.prompt, entry); err != nil || h.Start+shared < h.End {
			continue
		}
		best, bestTokens = l.Hits[i], l.Tokens
		best.Groups = append([]Group(nil), best.Groups...)
		if bestTokens >= h.End {
			break
		}
	}
	l.Hits[i] = best
	return nil
}

// fullerBlock looks at a prompt that ends in a partial block which is stored without the window rows that are needed. Another block that
// begins with the same tokens, and has those rows, takes its place among the hits.
func (l *Lookup) fullerBlock() error {
	i := len(l.Hits) - 1
	if i < 0 || i != l.chain.Len()-1 || !l.model.windows() {
		return nil
	}
	h := &l.Hits[i]
	if h.Tokens == l.model.Desc.BlockTokens {
		return nil // no other block has all its tokens; one that ends where a scope begins may have such
	}
	l.hashes = l.store.Hasher.AppendTokenHashes(l.hashes[:0], l.prompt, h.Start, h.End)
	return l.bestTie(i, l.hashes)
}
