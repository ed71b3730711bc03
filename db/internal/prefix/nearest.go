package prefix

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Nearest is the stored prompt that has most leading tokens in common with another one.
type Nearest struct {
	Common  int        // leading tokens that both have
	Theirs  []kv.Token // of the stored prompt behind these; none: it ends there, or the other one does
	Created int64      // when the block in which they part was put, in Unix seconds; 0: not known
}

// Nearest looks for the stored prompt that has most leading tokens in common with p, and reads at most more tokens of it behind these. It looks
// at what belongs to p's own scope, and in front of where that begins at what all scopes share. False: nothing is stored there.
//
// It counts nothing and reports no damage: what it cannot read is as if it were not stored. The caller holds a lease on the segments.
func (s *Store) Nearest(m Model, p *kv.Prompt, more int) (Nearest, bool, error) {
	l := s.Lookup(m, p, len(p.Tokens), true)
	defer l.Free()
	l.chain.Reset(s.Hasher, m.Fingerprint, m.Desc.BlockTokens, p)
	l.open()
	defer l.close()
	i, err := l.storedBlocks()
	if err != nil {
		return Nearest{}, false, err
	}
	if i == l.chain.Len() {
		return Nearest{Common: len(p.Tokens)}, true, nil
	}
	start, _ := l.chain.Block(i)
	near := nearby{l: l, start: start, end: min(p.BlockCapacityEnd(i, m.Desc.BlockTokens), len(p.Tokens)), want: more}
	near.best = Nearest{Common: start}
	if err := near.children(l.chain.Parent(i), l.chain.Scope(i)); err != nil {
		return Nearest{}, false, err
	}
	if len(near.best.Theirs) > 0 && len(near.best.Theirs) < more {
		if err := near.goOn(); err != nil {
			return Nearest{}, false, err
		}
	}
	return near.best, near.found || i > 0, nil
}

// storedBlocks is how many blocks of the chain are stored, as fullBlocks finds it.
func (l *Lookup) storedBlocks() (int, error) {
	lo, hi := 0, l.chain.Len()
	if l.bloom != nil {
		hi = l.letThrough(hi)
	}
	for lo < hi {
		mid := int(uint(lo+hi+1)/2) - 1
		_, ok, err := l.view.Get(l.chain.Key(mid), 0)
		if err != nil {
			return 0, err
		}
		if ok {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// nearby compares stored blocks with what a prompt has from start to end.
type nearby struct {
	l          *Lookup
	start, end int
	want       int // tokens of the stored prompt
	best       Nearest
	last       index.Entry // the block that best is of
	found      bool        // there is one
}

// children compares the children of a block that agree most with the prompt.
func (n *nearby) children(parent kv.Key, scope kv.ScopeID) error {
	l := n.l
	l.hashes = l.store.Hasher.AppendTokenHashes(l.hashes[:0], l.prompt, n.start, n.end)
	before, after, okB, okA, err := l.view.Neighbors(parent, scope, l.hashes)
	if err != nil {
		return err
	}
	keys := make([]kv.Key, 0, 2)
	if okB {
		keys = append(keys, before)
	}
	if okA && !(okB && after == before) {
		keys = append(keys, after)
	}
	for _, k := range keys {
		if err := n.compare(k, parent, scope); err != nil {
			return err
		}
	}
	if n.best.Common-n.start < index.MaxHashTokens {
		return nil
	}
	var ties []kv.Key // the order of children does not tell them apart
	if err := l.view.ChildrenLike(parent, scope, l.hashes[:index.MaxHashTokens*kv.TokenHashBytes], func(k kv.Key) bool {
		ties = append(ties, k)
		return len(ties) < maxTies
	}); err != nil {
		return err
	}
	for _, k := range ties {
		if err := n.compare(k, parent, scope); err != nil {
			return err
		}
	}
	return nil
}

// compare takes a block for best that has more tokens in common, or as many and goes on behind them, or does so and was put later.
func (n *nearby) compare(k, parent kv.Key, scope kv.ScopeID) error {
	x, ok, err := n.entry(k, parent, scope, n.start)
	if err != nil || !ok {
		return err
	}
	common := 0
	var theirs []kv.Token
	if n.l.store.Segments.Read(x.Loc, func(r *segments.Record) error {
		common = min(r.MatchTokens(n.l.prompt, n.start), n.end-n.start)
		if n.start+common < n.end {
			theirs = tokensOf(r, common, n.want)
		}
		return nil
	}) != nil {
		return nil
	}
	this := Nearest{Common: n.start + common, Theirs: theirs, Created: x.Created}
	better := this.Common > n.best.Common
	if this.Common == n.best.Common {
		goesOn, went := len(theirs) > 0, len(n.best.Theirs) > 0
		better = goesOn && !went || goesOn == went && this.Created > n.best.Created
	}
	if better || !n.found {
		n.best, n.last = this, x
	}
	n.found = true
	return nil
}

// entry is what the index says of a block, if it is the one that it must be and is not known to be damaged.
func (n *nearby) entry(k, parent kv.Key, scope kv.ScopeID, start int) (index.Entry, bool, error) {
	x, ok, err := n.l.view.Get(k, 0)
	if err != nil || !ok || x.Flags&index.FlagDamaged != 0 {
		return x, false, err
	}
	same := n.l.same(&x, &Hit{Key: k, Parent: parent, Scope: scope, Start: start, Tokens: int(x.Tokens)})
	return x, same, nil
}

// goOn reads on in the blocks below the one that was found, in the same scope. Where several are, one of them will do.
func (n *nearby) goOn() error {
	for len(n.best.Theirs) < n.want {
		var next kv.Key
		found := false
		if err := n.l.view.ChildrenLike(n.last.Key, n.last.Scope, nil, func(k kv.Key) bool {
			next, found = k, true
			return false
		}); err != nil || !found {
			return err
		}
		x, ok, err := n.entry(next, n.last.Key, n.last.Scope, int(n.last.First)+int(n.last.Tokens))
		if err != nil || !ok {
			return err
		}
		if n.l.store.Segments.Read(x.Loc, func(r *segments.Record) error {
			n.best.Theirs = append(n.best.Theirs, tokensOf(r, 0, n.want-len(n.best.Theirs))...)
			return nil
		}) != nil {
			return nil
		}
		n.last = x
	}
	return nil
}

// tokensOf are at most n of a record's tokens, from one on.
func tokensOf(r *segments.Record, from, n int) (out []kv.Token) {
	for i := from; i < r.TokenCount() && len(out) < n; i++ {
		out = append(out, r.Token(i))
	}
	return out
}
