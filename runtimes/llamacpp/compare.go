package llamacpp

import (
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

const (
	// compared is how many rows are looked at together, and apart how far they may be apart in the mean. The same tokens, evaluated in other batches or
	// without flash attention, give distances of 0.09 (Gemma 3 270M, f16 and q8_0), 0.30 (q4_0), 0.03 (SmolLM2-135M) in the median and
	// 0.27, 0.66, 0.10 at most; rows that were shifted by 1 to 50 positions 0.74 to 1.16 in the median.
	compared = 8
	apart    = 0.5
)

// same compares rows, from position first on, with what was seen of the first n positions before. Equal bits are the rule.
// Rows that differ a little are the same tokens evaluated once more; rows that differ much, or are what another position
// had, are other rows.
func (l *lineage) same(first int, now []sketch, n, sequence int) error {
	refuse := func(at int, why string) error { return &LineageError{sequence, at, why} }
	var changed []int
	var moved map[[sketchValues]float32]int // position by row; -1 for several
	judge := func(last []int) error {
		mean := 0.0
		for _, p := range last {
			mean += l.sketches[p].distance(&now[p-first]) / float64(len(last))
		}
		if mean > apart {
			return refuse(last[0], fmt.Sprintf("the rows are not those that were there: they differ by %.2f of their length", mean))
		}
		return nil
	}
	for p := first; p < min(n, len(l.sketches), first+len(now)); p++ {
		old, new := &l.sketches[p], &now[p-first]
		if !old.seen || old.values == new.values {
			continue
		}
		if moved == nil {
			moved = l.positions()
		}
		changed = append(changed, p)
		last := changed[max(0, len(changed)-compared):]
		if q := moved[new.values]; q > 0 {
			return refuse(last[0], fmt.Sprintf("the row of position %d is the one that position %d had: positions were shifted", p, q))
		}
		if len(last) == compared {
			if err := judge(last); err != nil {
				return err
			}
		}
	}
	if len(changed) > 0 && len(changed) < compared {
		return judge(changed)
	}
	return nil
}

// positions finds rows that only one position has. Position 0 is left out: nothing is shifted from there.
func (l *lineage) positions() map[[sketchValues]float32]int {
	of := map[[sketchValues]float32]int{}
	for p, s := range l.sketches {
		if !s.seen {
			continue
		}
		if _, twice := of[s.values]; twice {
			p = 0
		}
		of[s.values] = p
	}
	return of
}

// see keeps sketches of rows from position first on.
func (l *lineage) see(first int, now []sketch) {
	if n := first + len(now); n > len(l.sketches) {
		l.sketches = append(l.sketches, make([]sketch, n-len(l.sketches))...)
	}
	copy(l.sketches[first:], now)
}

// inOrder looks at the cells of a sequence that has them for itself. It fills them from the first one on, so the order of cells is that of
// positions. After a shift, what is evaluated next goes into the cells that were freed, before those of lower positions.
func (s *Session) inOrder(l *lineage, section *state.Section, n, sequence int) error {
	if l.trusted || !s.ownCells() {
		return nil // other sequences may have come and gone in between
	}
	for i, pos := range section.Pos {
		if int(pos) != i && i < n {
			return &LineageError{sequence, i, fmt.Sprintf("position %d lies in the cell of position %d: positions were shifted; if you gave it a state in another order of cells, call Reset", pos, i)}
		}
	}
	return nil
}

// again returns a position from which on all rows below n were evaluated once more since they were seen, if some were, to the bit; n: none were.
func (l *lineage) again(first int, now []sketch, n int) int {
	kept := 0 // behind the last row that is as it was
	for p := first; p < min(n, len(l.sketches), first+len(now)); p++ {
		switch old := &l.sketches[p]; {
		case !old.seen:
		case old.bits != now[p-first].bits:
			return kept
		default:
			kept = p + 1
		}
	}
	return n
}

// whole refuses rows below n that were evaluated once more, behind positions that were removed, where a part of their window is gone by now. Their tokens are
// what they were, and what they lack changes them little: nothing else tells. It is sure where the cache keeps what its window layers had; else rows that
// went afterwards are taken for rows that were missing.
func (s *Session) whole(l *lineage, first int, now []sketch, n, sequence int) error {
	at := l.again(first, now, n)
	if at == n {
		return nil
	}
	gone := s.windowGone(l, max(1, at), sequence)
	if gone == nil {
		return nil
	}
	gone.Why = "the same tokens were evaluated again behind positions that were removed; " + gone.Why
	l.wrong = gone
	return gone
}
