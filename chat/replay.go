package chat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
)

// replay builds a log from the frames of a file.
func replay(scope func(id string) string, frames []db.SessionFrame) (h head, l *log, err error) {
	for i, f := range frames {
		if (i == 0) != (f.Kind == headFrame) {
			return h, nil, fmt.Errorf("%w: number %d is of kind %d", errFrame, i, f.Kind)
		}
		if i == 0 {
			if h, err = decodeHead(f.Body); err == nil {
				l = newLog(scope(h.id), h.user, h.system)
				l.lastTurn, l.lastFact = h.lastTurn, h.lastFact
			}
		} else {
			err = l.apply(f)
		}
		if err != nil {
			return h, nil, fmt.Errorf("frame %d: %w", i, err)
		}
	}
	if l == nil {
		return h, nil, fmt.Errorf("%w: there is none", errFrame)
	}
	return h, l, nil
}

// apply makes the change of a frame.
func (l *log) apply(f db.SessionFrame) error {
	switch f.Kind {
	case factFrame:
		x, err := decodeFact(f.Body)
		if err == nil {
			l.set(x)
		}
		return err
	case placedFrame:
		p, tokens, err := decodePlaced(f.Body)
		if err == nil {
			err = l.sees(&p)
		}
		if err == nil {
			l.lastFact = max(l.lastFact, p.id)
			l.place(p, tokens)
		}
		return err
	case turnFrame:
		t, err := decodeTurn(f.Body)
		if err != nil {
			return err
		}
		return l.applyTurn(&t)
	case rewindFrame:
		r := in{b: f.Body}
		id := TurnID(r.uint())
		if err := r.end(); err != nil {
			return err
		}
		i, err := l.turn(id)
		if err != nil {
			return notThere(err)
		}
		l.cut(i)
		return nil
	case insteadFrame:
		return l.applyInstead(f.Body)
	case placeFrame:
		r := in{b: f.Body}
		n := r.int()
		if err := r.end(); err != nil || n != len(l.pending) {
			return errors.Join(err, fmt.Errorf("%w: %d facts are placed, and %d were set", errFrame, n, len(l.pending)))
		}
		l.settle(l.pending)
		l.pending = nil
		return nil
	case metaFrame:
		l.meta = slices.Clone(f.Body)
		return nil
	}
	return fmt.Errorf("%w: a frame of a conversation of kind %d, which this release does not know", db.ErrVersion, f.Kind)
}

// notThere is the error of a frame that takes back a turn that the log does not have.
func notThere(err error) error { return fmt.Errorf("%w: %w", errFrame, err) }

func (l *log) applyTurn(t *turnRecord) error {
	l.evict(t.evicted)
	p := t.part
	if err := l.sees(&p); err != nil {
		return err
	}
	at := 0
	for _, s := range p.turn.spans {
		if s.Len < 1 || s.Start < at || s.Start+s.Len > len(t.tokens) {
			return fmt.Errorf("%w: turn %d has a span of %d tokens at %d", errFrame, p.id, s.Len, s.Start)
		}
		at = s.Start + s.Len
	}
	if _, err := l.turn(TurnID(p.id)); err == nil || TurnID(p.id) == 0 {
		return fmt.Errorf("%w: turn %d is there twice", errFrame, p.id)
	}
	l.lastTurn = max(l.lastTurn, TurnID(p.id))
	l.place(p, t.tokens)
	return nil
}

// applyInstead takes back turns, places facts, and appends the turn that replaces them.
func (l *log) applyInstead(body []byte) error {
	r := in{b: body}
	id := TurnID(r.uint())
	placed := items(&r, r.fact)
	if r.err != nil {
		return r.err
	}
	t, err := decodeTurn(r.b)
	if err != nil {
		return err
	}
	i, err := l.turn(id)
	if err != nil {
		return notThere(err)
	}
	l.cut(i)
	l.pending = slices.DeleteFunc(l.pending, func(f fact) bool {
		return slices.ContainsFunc(placed, func(g fact) bool { return g.id == f.id })
	})
	l.settle(placed)
	return l.applyTurn(&t)
}

// sees checks the view of a new part: it must end where the log ends.
func (l *log) sees(p *part) error {
	n := len(l.tokens)
	if v := p.view; !slices.Equal(v, merged(v)) || len(v) > 0 && v[len(v)-1].End != n || len(v) == 0 && n > 0 {
		return fmt.Errorf("%w: part %d of the log was seen in the view %v of %d tokens", errFrame, p.id, v, n)
	}
	return nil
}

// frames returns the frames of a new file for the log: the head, its parts and its pending facts. The turns in keep are not marked as evicted.
func (l *log) frames(h head, keep []TurnID) []db.SessionFrame {
	h.lastTurn, h.lastFact = l.lastTurn, l.lastFact
	fs := []db.SessionFrame{{Kind: headFrame, Body: h.encode()}}
	if l.meta != nil {
		fs = append(fs, db.SessionFrame{Kind: metaFrame, Body: l.meta})
	}
	for i := range l.parts {
		p := &l.parts[i]
		tokens := l.tokens[p.start:p.end]
		switch p.kind {
		case factPart:
			fs = append(fs, db.SessionFrame{Kind: placedFrame, Body: encodePlaced(p, tokens)})
		case turnPart:
			t := turnRecord{part: *p, tokens: tokens}
			t.part.gone = p.gone && !slices.Contains(keep, TurnID(p.id))
			fs = append(fs, db.SessionFrame{Kind: turnFrame, Body: t.encode()})
		}
	}
	for _, f := range l.pending {
		fs = append(fs, db.SessionFrame{Kind: factFrame, Body: f.encode()})
	}
	return fs
}
