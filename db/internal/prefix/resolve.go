package prefix

import (
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// addHit appends block i of the chain.
func (l *Lookup) addHit(i int) *Hit {
	start, end := l.chain.Block(i)
	l.Hits = append(l.Hits, Hit{
		Key: l.chain.Key(i), Parent: l.chain.Parent(i), Scope: l.chain.Scope(i),
		Start: start, End: min(end, l.limit), Tokens: end - start,
	})
	return &l.Hits[len(l.Hits)-1]
}

// same compares what an index entry says about a block with what it must be.
func (l *Lookup) same(e *index.Entry, h *Hit) bool {
	return e.Model == l.model.Fingerprint && e.Parent == h.Parent && e.Scope == h.Scope && int(e.First) == h.Start && int(e.Tokens) == h.Tokens
}

// Resolve asks the index where the records of hit i lie, unless that is known. If the index does not have the block, or has something
// else under its key, group 0 is marked as bad. The error is one of the index.
func (l *Lookup) Resolve(i int) error {
	h := &l.Hits[i]
	if h.Groups != nil {
		return nil
	}
	l.open()
	defer l.close()
	entry, ok, err := l.view.Get(h.Key, 0)
	if err != nil {
		return err
	}
	if !ok {
		l.groupsOf(i)[0].Bad = ErrGone
		return nil
	}
	return l.resolveAs(i, &entry)
}

// resolveAs is Resolve for a hit whose entry is known.
func (l *Lookup) resolveAs(i int, entry *index.Entry) error {
	h := &l.Hits[i]
	groups := l.groupsOf(i)
	switch {
	case !l.same(entry, h):
		l.store.Collisions.Add(1)
		groups[0].Bad = ErrCollision
		return nil
	case entry.Flags&index.FlagDamaged != 0:
		groups[0].Bad = ErrFlagged
		return nil
	}
	h.Uses = entry.Hits
	groups[0] = Group{Loc: entry.Loc, RowCount: int(entry.Tokens)}
	for g := 1; g < len(groups); g++ {
		if l.model.Desc.Groups[g].Kind != kv.Window {
			continue
		}
		ge, ok, err := l.view.Get(h.Key, uint8(g))
		if err != nil {
			h.Groups = nil
			return err
		}
		if ok && ge.Flags&index.FlagDamaged != 0 {
			groups[g].Bad = ErrFlagged
		} else if ok {
			groups[g] = Group{Loc: ge.Loc, RowFirst: int(ge.RowFirst), RowCount: int(ge.RowCount)}
		}
	}
	return nil
}

// groupsOf gives hit i its empty groups.
func (l *Lookup) groupsOf(i int) []Group {
	n := len(l.model.Desc.Groups)
	if need := (i + 1) * n; need > len(l.groups) {
		// Hits point into the old array where it grows: what they have stays there.
		l.groups = slices.Grow(l.groups, need-len(l.groups))[:need]
	}
	groups := l.groups[i*n : (i+1)*n : (i+1)*n]
	clear(groups)
	l.Hits[i].Groups = groups
	return groups
}

// ResolveTo resolves every hit that begins before position p. The error is one of the index.
func (l *Lookup) ResolveTo(p int) error {
	l.open()
	defer l.close()
	for i := range l.Hits {
		if l.Hits[i].Start >= p {
			break
		}
		if err := l.Resolve(i); err != nil {
			return err
		}
	}
	return nil
}

// ResolveHeld is ResolveTo for one who keeps the hits up to a block from going: up to the one that rests returns, once all are resolved. What
// lies behind that and was not resolved before is gone, also if the index has it: it was put since.
func (l *Lookup) ResolveHeld(p int, rests func() kv.Key) error {
	l.fresh = l.fresh[:0]
	for i := range l.Hits {
		if h := &l.Hits[i]; h.Start < p && h.Groups == nil {
			l.fresh = append(l.fresh, i)
		}
	}
	if len(l.fresh) == 0 {
		return nil
	}
	if err := l.ResolveTo(p); err != nil {
		return err
	}
	k := rests()
	last := len(l.Hits) - 1
	for last >= 0 && l.Hits[last].Key != k {
		last--
	}
	for _, i := range l.fresh {
		if i > last {
			l.groupsOf(i)[0].Bad = ErrGone
		}
	}
	return nil
}

// ResolveAll resolves every hit. The error is one of the index.
func (l *Lookup) ResolveAll() error { return l.ResolveTo(l.limit) }

// resolveFlagged resolves the hits that were once found damaged, so that a match does not promise what is known to be bad.
func (l *Lookup) resolveFlagged() error {
	for i := range l.Hits {
		if l.store.WasDamaged(l.Hits[i].Key) {
			if err := l.Resolve(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Covers returns the positions, [start, end), for which the record of group g of a resolved hit has rows; none if it is bad.
func (h *Hit) Covers(g int) (start, end int) {
	r := &h.Groups[g]
	if r.Loc.Length == 0 || r.Bad != nil {
		return h.Start, h.Start
	}
	return h.Start + r.RowFirst, min(h.Start+r.RowFirst+r.RowCount, h.End)
}

// AppendRests appends the blocks that the usable prefix rests on: the one that holds its last token and, where that is another, the one
// with its state. As long as these are stored, closure keeps all before them.
func (l *Lookup) AppendRests(keys []kv.Key) []kv.Key {
	for i := len(l.Hits) - 1; i >= 0; i-- {
		if l.Hits[i].Start < l.Tokens {
			keys = append(keys, l.Hits[i].Key)
			break
		}
	}
	for i := range l.States {
		if s := &l.States[i]; s.At == l.Tokens && l.Tokens > 0 && !slices.Contains(keys, s.Key) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// StillIn reports whether block k is stored in a version of the index, and what was found of it lies where it lay.
func (l *Lookup) StillIn(v *index.View, k kv.Key) (bool, error) {
	if _, ok, err := v.Get(k, 0); !ok || err != nil {
		return false, err
	}
	lies := func(group int, at index.Loc) (bool, error) {
		x, ok, err := v.Get(k, uint8(group))
		return ok && x.Loc == at, err
	}
	for i := range l.Hits {
		if l.Hits[i].Key != k {
			continue
		}
		for g, x := range l.Hits[i].Groups {
			if x.Loc.Length == 0 {
				continue
			}
			if ok, err := lies(g, x.Loc); !ok || err != nil {
				return false, err
			}
		}
	}
	for _, s := range l.States {
		if s.Key != k {
			continue
		}
		if ok, err := lies(s.Group, s.Loc); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
