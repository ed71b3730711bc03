package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// settle computes the usable prefix from the hits that are not marked bad, and why it is not longer. The error is one of
// the index.
func (l *lookup) settle() error {
	l.tokens, l.reason = 0, l.ends
	if len(l.hits) == 0 {
		if l.reason == (Reason{Code: Ends}) { // as the Bloom filter says where it is sure
			l.reason.Code = NothingStored
		}
		return nil
	}
	l.open()
	defer l.close()
	p := 0
	for i := range l.hits {
		h := &l.hits[i]
		if h.groups != nil && h.groups[0].bad != nil {
			l.reason = reasonOf(h.groups[0].bad, h.start)
			break
		}
		p = h.end
	}
	if p == l.limit {
		l.reason = Reason{Code: Complete, At: p}
	} else if l.reason.Code == Ends {
		l.reason.At = p
	}
	for {
		start := p
		if q := l.p.Clip(p); q < p {
			l.reason, p = Reason{Code: InSpan, At: p}, q
		}
		l.states = l.states[:0]
		for g, group := range l.m.desc.Groups {
			var err error
			switch group.Kind {
			case kv.Window:
				p, err = l.windowEnd(g, group.Window, p)
			case kv.StateAt:
				p, err = l.stateEnd(g, p)
			}
			if err != nil {
				return err
			}
		}
		if p == start {
			break
		}
	}
	if p < kv.OpeningTokens && !l.exact {
		if p > 0 {
			l.reason = Reason{Code: TooShort, At: p}
		}
		p = 0
	}
	l.tokens = p
	return nil
}

// windowEnd returns the largest position at most p for which the last w rows before it are stored.
func (l *lookup) windowEnd(g, w, p int) (int, error) {
	end, need := p, p // rows [need, end) are stored
	for i := len(l.hits) - 1; i >= 0 && need > max(0, end-w); {
		h := &l.hits[i]
		if h.start >= need {
			i--
			continue
		}
		if err := l.resolve(i); err != nil {
			return 0, err
		}
		from, to := h.covers(g)
		to = min(to, need)
		if from < to && to == need {
			need = from
			continue
		}
		// Row need-1 is missing: no prefix that looks back at it can be used.
		l.reason = Reason{Code: WindowMissing, At: need - 1, Group: g}
		if bad := h.groups[g].bad; bad != nil {
			l.reason = reasonOf(bad, h.start)
			l.reason.Group = g
		}
		end = h.start
		if from < to {
			end = to
		}
		need = end
	}
	return end, nil
}

// stateEnd returns the largest position at most p with a stored state of group g, which it notes. States lie at the ends of
// the prefix's blocks, and of the tails that begin where a block does.
func (l *lookup) stateEnd(g, p int) (int, error) {
	bad := Reason{}
	for i := len(l.hits) - 1; i >= 0; i-- {
		h := &l.hits[i]
		if h.start >= p {
			continue
		}
		at, err := forerunners(&l.view, l.e.hasher, l.p, &l.chain, i, min(h.end, p))
		if err != nil {
			return 0, err
		}
		for j := len(at) - 1; j >= 0; j-- {
			e, ok, err := l.view.Get(at[j].key, uint8(g))
			if err != nil {
				return 0, err
			}
			if !ok || e.Model != l.m.Fingerprint || e.Loc.Length == 0 {
				continue
			}
			s := stateHit{
				at: at[j].end, group: g, key: at[j].key, parent: l.chain.Parent(i), scope: l.chain.Scope(i), start: h.start, loc: e.Loc,
			}
			err = l.brokenState(s)
			if err == nil && e.Flags&index.FlagDamaged != 0 {
				err = errFlagged
			}
			if err != nil {
				if bad.Err == nil {
					bad = reasonOf(err, s.at)
				}
				continue
			}
			l.states = append(l.states, s)
			if s.at < p {
				l.stateShort(g, s.at, bad)
			}
			return s.at, nil
		}
	}
	if p > 0 {
		l.stateShort(g, 0, bad)
	}
	return 0, nil
}

// stateShort says why the prefix ends at the state at position at.
func (l *lookup) stateShort(g, at int, bad Reason) {
	switch {
	case bad.Err != nil:
		l.reason = bad
	case l.reason.Code != Damaged && l.reason.Code != Gone:
		l.reason = Reason{Code: StateMissing, At: at, Group: g}
	}
}

// brokenState returns why a state cannot be used, if it was tried before.
func (l *lookup) brokenState(s stateHit) error {
	for i := range l.broken {
		if b := &l.broken[i]; b.key == s.key && b.group == s.group && b.loc == s.loc {
			return b.bad
		}
	}
	return nil
}
