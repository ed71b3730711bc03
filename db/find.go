package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// find looks for the largest prefix of the prompt, at most limit tokens, whose rows are stored for every group.
func (l *lookup) find() error {
	l.reset()
	if l.limit < 1 || l.limit < kv.OpeningTokens && !l.exact {
		return l.nothing(TooShort)
	}
	l.chain.Reset(l.e.hasher, l.m.Fingerprint, l.m.desc.BlockTokens, l.p)
	if !l.exact && !l.e.mayHold(l.chain.Opening()) {
		return l.nothing(NothingStored)
	}
	l.open()
	defer l.close()
	if err := l.fullBlocks(); err != nil {
		return err
	}
	if err := l.tailBlock(); err != nil {
		return err
	}
	if err := l.partialBlock(); err != nil {
		return err
	}
	return l.shorterTail()
}

// tailBlock puts in the place of the prompt's own tail, if that is stored without the window rows that it takes, a longer
// block with the same tokens that has them.
func (l *lookup) tailBlock() error {
	i := len(l.hits) - 1
	if i < 0 || i != l.chain.Len()-1 || !l.m.windows() {
		return nil
	}
	h := &l.hits[i]
	if h.tokens == l.m.desc.BlockTokens {
		return nil // no other block has all its tokens; one that ends where a scope begins may have such
	}
	l.hashes = l.e.hasher.AppendTokenHashes(l.hashes[:0], l.p, h.start, h.end)
	return l.bestTie(i, l.hashes)
}

func (l *lookup) nothing(why ReasonCode) error {
	l.ends = Reason{Code: why}
	l.reason = l.ends
	return nil
}

// fullBlocks appends the stored blocks of the chain. Closure (a stored block's prefix is stored) makes their number a search for one
// border. The Bloom filter says where it lies at most, and one read of the index whether it does; only after a false yes, and without a
// filter, the index is asked by halves. Blocks that are not asked for on the way are taken to be what they must be; whoever wants their
// rows asks. What this gains over a read for each yes, and over two levels of filters: docs/filter.md.
func (l *lookup) fullBlocks() error {
	lo, hi := 0, l.p.BlockAt(l.limit-1, l.m.desc.BlockTokens)+1 // blocks [0, lo) are stored, [hi, …) are not
	var last index.Entry                                        // of block lo-1
	stored := func(i int) (bool, error) {
		k := l.chain.Key(i)
		if l.bloom != nil && !l.bloom.MayContain(k) {
			return false, nil
		}
		entry, ok, err := l.view.Get(k, 0)
		if ok {
			last = entry
		} else if err == nil {
			l.e.count.bloomFalse.Add(1)
		}
		return ok, err
	}
	if l.bloom != nil {
		if hi = l.letThrough(hi); hi > 0 {
			ok, err := stored(hi - 1)
			if err != nil {
				return err
			}
			if ok {
				lo = hi
			} else {
				hi--
			}
		}
	}
	for lo < hi {
		mid := int(uint(lo+hi+1)/2) - 1
		ok, err := stored(mid)
		if err != nil {
			return err
		}
		if ok {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := range lo {
		l.addHit(i)
	}
	l.ends = Reason{Code: Ends}
	if lo == 0 {
		return nil
	}
	if err := l.resolveAs(lo-1, &last); err != nil {
		return err
	}
	return l.resolveDoubtful()
}

// maxStep is how many blocks of a prompt are hashed at most before the Bloom filter is asked again: 16 of them take about three times as
// long as the filter's yes.
const maxStep = 16

// letThrough returns how many of the chain's first n blocks may be stored, by the Bloom filter alone: it has the next one's no. It asks in
// growing steps, so that a prompt which diverges early is not hashed to its end.
func (l *lookup) letThrough(n int) int {
	lo, hi := 0, n
	for step := 1; lo < hi; step = min(2*step, maxStep) {
		next := min(lo+step, n)
		if !l.bloom.MayContain(l.chain.Key(next - 1)) {
			hi = next - 1
			break
		}
		lo = next
	}
	for lo < hi {
		mid := int(uint(lo+hi+1)/2) - 1
		if l.bloom.MayContain(l.chain.Key(mid)) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// resolveDoubtful resolves the hits that were once found damaged, so that a match does not promise what is known to be bad.
func (l *lookup) resolveDoubtful() error {
	for i := range l.hits {
		if l.e.doubtful(l.hits[i].key) {
			if err := l.resolve(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// partialBlock adds the first rows of the stored block that shares most leading tokens with what follows the full
// ones: K and V of a token depend on earlier tokens only.
func (l *lookup) partialBlock() error {
	i := len(l.hits)
	if i >= l.chain.Len() || i > 0 && l.hits[i-1].groups != nil && l.hits[i-1].groups[0].bad != nil {
		return nil
	}
	start, _ := l.chain.Block(i)
	if start >= l.limit {
		return nil
	}
	end := min(l.p.BlockCapacityEnd(i, l.m.desc.BlockTokens), len(l.p.Tokens))
	l.ends.At = start
	l.hashes = l.e.hasher.AppendTokenHashes(l.hashes[:0], l.p, start, end)
	hashes := l.hashes
	parent, scope := l.chain.Parent(i), l.chain.Scope(i)
	before, after, okB, okA, _, _, err := l.view.Neighbors(parent, scope, hashes)
	if err != nil {
		return err
	}
	best := hit{parent: parent, scope: scope, start: start, end: start}
	var bestEntry index.Entry
	try := func(k kv.Key, ok bool) error {
		if !ok {
			return nil
		}
		entry, ok, err := l.view.Get(k, 0)
		h := hit{key: k, parent: parent, scope: scope, start: start, tokens: int(entry.Tokens)}
		if err != nil || !ok || !l.same(&entry, &h) || entry.Flags&index.FlagDamaged != 0 {
			return err
		}
		shared, rerr := l.e.sharedTokens(l.p, entry)
		if rerr != nil {
			l.ends = Reason{Code: Damaged, At: start, Err: rerr}
			return nil // a read error is only a miss
		}
		shared = min(shared, end-start) // behind end begins the prompt's own scope
		if shared < int(entry.Tokens) && start+shared < end {
			l.ends = Reason{Code: Diverged, At: start + shared}
		}
		if start+shared > best.end {
			h.end = start + shared
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
	if best.end-start >= index.MaxHashTokens {
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
	if best.end == start {
		return nil
	}
	shared := best.end - start
	if shared == best.tokens || best.end >= end {
		l.ends = Reason{Code: Ends, At: best.end}
	} else {
		l.ends = Reason{Code: Diverged, At: best.end}
	}
	best.end = min(best.end, l.limit)
	l.hits = append(l.hits, best)
	if err := l.resolveAs(i, &bestEntry); err != nil {
		return err
	}
	if l.m.windows() {
		return l.bestTie(i, hashes[:(best.end-start)*kv.TokenHashBytes])
	}
	return nil
}

// maxTies bounds the children that are compared with each other.
const maxTies = 64

func (m *modelState) windows() bool {
	for _, g := range m.desc.Groups {
		if g.Kind == kv.Window {
			return true
		}
	}
	return false
}

// bestTie puts in the place of the partial hit i the child that shares as many tokens and whose window rows let most of
// them be used.
func (l *lookup) bestTie(i int, hashes []byte) error {
	if err := l.settle(); err != nil || l.tokens >= l.hits[i].end {
		return err
	}
	first := l.hits[i]
	var ties []kv.Key
	if err := l.view.ChildrenLike(first.parent, first.scope, hashes, func(k kv.Key) bool {
		if k != first.key {
			ties = append(ties, k)
		}
		return len(ties) < maxTies
	}); err != nil {
		return err
	}
	best, bestTokens := first, l.tokens
	best.groups = append([]groupHit(nil), first.groups...)
	for _, k := range ties {
		entry, ok, err := l.view.Get(k, 0)
		if err != nil {
			return err
		}
		h := first
		h.key, h.tokens, h.groups = k, int(entry.Tokens), nil
		if !ok || !l.same(&entry, &h) || entry.Flags&index.FlagDamaged != 0 {
			continue
		}
		l.hits[i] = h
		if err := l.resolveAs(i, &entry); err != nil {
			return err
		}
		if err := l.settle(); err != nil {
			return err
		}
		if l.tokens <= bestTokens {
			continue
		}
		// Hashes agree: do the tokens?
		if shared, err := l.e.sharedTokens(l.p, entry); err != nil || h.start+shared < h.end {
			continue
		}
		best, bestTokens = l.hits[i], l.tokens
		best.groups = append([]groupHit(nil), best.groups...)
		if bestTokens >= h.end {
			break
		}
	}
	l.hits[i] = best
	return nil
}

// sharedTokens reads a record's tokens and counts how many of them the prompt has too.
func (e *engine) sharedTokens(p *kv.Prompt, x index.Entry) (n int, err error) {
	err = e.set.Read(x.Loc, func(r *segments.Record) error {
		n = r.MatchTokens(p, int(x.First))
		return nil
	})
	return n, err
}
