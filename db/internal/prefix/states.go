package prefix

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// stateEnd returns the largest position at most p with a stored state of group g, which it adds to States. States lie at
// the ends of the prefix's blocks, and of the partial blocks that begin where one of them does.
func (l *Lookup) stateEnd(g, p int) (int, error) {
	bad := kv.Reason{}
	for _, s := range l.found { // it may have been deleted since
		if s.Group == g && s.At == p && l.brokenState(s) == nil {
			l.States = append(l.States, s)
			return p, nil
		}
	}
	for i := len(l.Hits) - 1; i >= 0; i-- {
		h := &l.Hits[i]
		if h.Start >= p {
			continue
		}
		at, err := StoredPrefixes(&l.view, l.store.Hasher, l.prompt, &l.chain, i, min(h.End, p))
		if err != nil {
			return 0, err
		}
		for j := len(at) - 1; j >= 0; j-- {
			e, ok, err := l.view.Get(at[j].Key, uint8(g))
			if err != nil {
				return 0, err
			}
			if !ok || e.Model != l.model.Fingerprint || e.Loc.Length == 0 {
				continue
			}
			s := State{
				At: at[j].End, Group: g, Key: at[j].Key, Parent: l.chain.Parent(i), Scope: l.chain.Scope(i), Start: h.Start, Loc: e.Loc,
			}
			err = l.brokenState(s)
			if err == nil && e.Flags&index.FlagDamaged != 0 {
				err = ErrFlagged
			}
			if err != nil {
				if bad.Err == nil {
					bad = ReasonOf(err, s.At)
				}
				continue
			}
			l.States = append(l.States, s)
			if s.At < p {
				l.stateShort(g, s.At, bad)
			}
			return s.At, nil
		}
	}
	if p > 0 {
		l.stateShort(g, 0, bad)
	}
	return 0, nil
}

// stateShort says why the prefix ends at the state at position at.
func (l *Lookup) stateShort(g, at int, bad kv.Reason) {
	switch {
	case bad.Err != nil:
		l.Reason = bad
	case l.Reason.Code != kv.Damaged && l.Reason.Code != kv.Gone:
		l.Reason = kv.Reason{Code: kv.StateMissing, At: at, Group: g}
	}
}

// brokenState returns why a state cannot be used, if it was tried before.
func (l *Lookup) brokenState(s State) error {
	for i := range l.broken {
		if b := &l.broken[i]; b.Key == s.Key && b.Group == s.Group && b.Loc == s.Loc {
			return b.Bad
		}
	}
	return nil
}
