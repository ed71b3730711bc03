package prefix

import "github.com/dormousekv/dormouse/kv"

// Measure computes the usable prefix (Tokens, States) from the records that are not marked as bad, and why it is no longer (Reason). The
// error is one of the index.
func (l *Lookup) Measure() error {
	l.Tokens, l.Reason = 0, l.ends
	if len(l.Hits) == 0 {
		if l.Reason == (kv.Reason{Code: kv.Ends}) { // as the Bloom filter says where it is sure
			l.Reason.Code = kv.NothingStored
		}
		return nil
	}
	l.open()
	defer l.close()
	p := 0
	for i := range l.Hits {
		h := &l.Hits[i]
		if h.Groups != nil && h.Groups[0].Bad != nil {
			l.Reason = ReasonOf(h.Groups[0].Bad, h.Start)
			break
		}
		p = h.End
	}
	if p == l.limit {
		l.Reason = kv.Reason{Code: kv.Complete, At: p}
	} else if l.Reason.Code == kv.Ends {
		l.Reason.At = p
	}
	for {
		start := p
		if q := l.prompt.Clip(p); q < p {
			l.Reason, p = kv.Reason{Code: kv.InSpan, At: p}, q
		}
		l.States = l.States[:0]
		for g, group := range l.model.Desc.Groups {
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
			l.Reason = kv.Reason{Code: kv.TooShort, At: p}
		}
		p = 0
	}
	l.Tokens = p
	return nil
}

// windowEnd returns the largest position at most p for which the last w rows before it are stored.
func (l *Lookup) windowEnd(g, w, p int) (int, error) {
	end, need := p, p // rows [need, end) are stored
	for i := len(l.Hits) - 1; i >= 0 && need > max(0, end-w); {
		h := &l.Hits[i]
		if h.Start >= need {
			i--
			continue
		}
		if err := l.Resolve(i); err != nil {
			return 0, err
		}
		from, to := h.Covers(g)
		to = min(to, need)
		if from < to && to == need {
			need = from
			continue
		}
		// Row need-1 is missing: no prefix that looks back at it can be used.
		l.Reason = kv.Reason{Code: kv.WindowMissing, At: need - 1, Group: g}
		if bad := h.Groups[g].Bad; bad != nil {
			l.Reason = ReasonOf(bad, h.Start)
			l.Reason.Group = g
		}
		end = h.Start
		if from < to {
			end = to
		}
		need = end
	}
	return end, nil
}
