package prefix

import (
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// StoredPrefix is a stored block that holds the first tokens of a longer one, or all of them.
type StoredPrefix struct {
	Key kv.Key
	End int // position behind its last token
}

// Reader is what finding blocks needs of an index.View or an index.Txn.
type Reader interface {
	Get(k kv.Key, group uint8) (index.Entry, bool, error)
	StoredPrefixes(parent kv.Key, scope kv.ScopeID, hashes []byte, fn func(child kv.Key, hashed int) bool) error
}

// StoredPrefixes returns the stored blocks whose tokens are the prompt's from where block i of the chain starts, up to at most
// end, the shortest first. The order of children in the index leads to them: hashing every shorter prefix would cost the square of the block's
// length.
func StoredPrefixes(v Reader, h kv.Hasher, p *kv.Prompt, chain *kv.Chain, i, end int) ([]StoredPrefix, error) {
	start, _ := chain.Block(i)
	var out []StoredPrefix
	var long []kv.Key // blocks that the order of children cannot tell apart
	hashes := h.AppendTokenHashes(nil, p, start, end)
	err := v.StoredPrefixes(chain.Parent(i), chain.Scope(i), hashes, func(k kv.Key, hashed int) bool {
		switch {
		case hashed == 0:
		case hashed >= index.MaxHashTokens:
			long = append(long, k)
			return len(long) <= maxTies
		case chain.Partial(i, start+hashed) == k:
			out = append(out, StoredPrefix{k, start + hashed})
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(out)
	if len(long) <= maxTies {
		slices.Reverse(long)
		for _, k := range long {
			e, ok, err := v.Get(k, 0)
			if err != nil {
				return nil, err
			}
			if at := start + int(e.Tokens); ok && at <= end && chain.Partial(i, at) == k {
				out = append(out, StoredPrefix{k, at})
			}
		}
		slices.SortFunc(out, func(a, b StoredPrefix) int { return a.End - b.End })
		return out, nil
	}
	// So many that trying each length is the shorter way; what was found of the shorter ones may not be all.
	out = out[:0]
	for at := start + 1; at <= end; at++ {
		k := chain.Partial(i, at)
		if _, ok, err := v.Get(k, 0); err != nil {
			return nil, err
		} else if ok {
			out = append(out, StoredPrefix{k, at})
		}
	}
	return out, nil
}
