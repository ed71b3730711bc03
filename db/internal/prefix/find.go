package prefix

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Find looks for the largest prefix of the prompt whose rows are stored for every group. The error is one of the index.
func (l *Lookup) Find() error {
	l.Reset()
	if l.limit < 1 || l.limit < kv.OpeningTokens && !l.exact {
		return l.nothing(kv.TooShort)
	}
	l.chain.Reset(l.store.Hasher, l.model.Fingerprint, l.model.Desc.BlockTokens, l.prompt)
	if !l.exact && !l.store.MayHold(l.chain.Opening()) {
		return l.nothing(kv.NothingStored)
	}
	l.open()
	defer l.close()
	if err := l.fullBlocks(); err != nil {
		return err
	}
	if err := l.fullerBlock(); err != nil {
		return err
	}
	if err := l.sharedBlock(); err != nil {
		return err
	}
	if !l.openingStored() {
		l.Reset()
		return l.nothing(kv.NothingStored)
	}
	if err := l.shorterPartial(); err != nil {
		return err
	}
	l.found = append(l.found[:0], l.States...)
	return nil
}

// openingStored reports whether a stored prompt begins with the first tokens of this one, or what was read of it is damaged. The Bloom filter
// says so at once only where there is one, and it still knows what was removed.
func (l *Lookup) openingStored() bool {
	end := 0
	for i := range l.Hits {
		if h := &l.Hits[i]; h.Groups != nil && h.Groups[0].Bad != nil {
			return true
		}
		end = l.Hits[i].End
	}
	need := kv.OpeningTokens
	if l.exact {
		need = 1
	}
	return end >= need || l.ends.Code != kv.Diverged && l.ends.Code != kv.Ends
}

func (l *Lookup) nothing(why kv.ReasonCode) error {
	l.ends = kv.Reason{Code: why}
	l.Reason = l.ends
	return nil
}

// fullBlocks appends the stored blocks of the chain. Closure makes their number a search for one
// border. The Bloom filter says where it lies at most, and one read of the index whether it does; only after a false yes, and without a
// filter, the index is asked by halves. Blocks that are not met on the way are taken to be what they must be: whoever wants their
// rows resolves them. What this gains over a read for each yes, and over two levels of filters: docs/filter.md.
func (l *Lookup) fullBlocks() error {
	lo, hi := 0, l.prompt.BlockAt(l.limit-1, l.model.Desc.BlockTokens)+1 // blocks [0, lo) are stored, [hi, …) are not
	var last index.Entry                                                 // of block lo-1
	stored := func(i int) (bool, error) {
		k := l.chain.Key(i)
		if l.bloom != nil && !l.bloom.MayContain(k) {
			return false, nil
		}
		entry, ok, err := l.view.Get(k, 0)
		if ok {
			last = entry
		} else if err == nil {
			l.store.BloomFalse.Add(1)
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
	l.ends = kv.Reason{Code: kv.Ends}
	if lo == 0 {
		return nil
	}
	if err := l.resolveAs(lo-1, &last); err != nil {
		return err
	}
	return l.resolveFlagged()
}

// maxStep is how many blocks of a prompt are hashed at most before the Bloom filter is asked again: 16 of them take about three times as
// long as the filter's yes.
const maxStep = 16

// letThrough returns how many of the chain's first n blocks may be stored, by the Bloom filter alone: it has the next one's no. It asks in
// growing steps, so that a prompt which diverges early is not hashed to its end.
func (l *Lookup) letThrough(n int) int {
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
