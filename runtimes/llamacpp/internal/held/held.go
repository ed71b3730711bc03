// Package held knows which tokens the sequences of a cache have, position by position. A runtime keeps it beside the cache, which has
// no tokens.
package held

import "github.com/dormousekv/dormouse/kv"

// Sequence is the tokens of one sequence. Positions may have holes.
type Sequence struct {
	rows []row // up to the last that there is
}

type row struct {
	token kv.Token
	there bool
}

// End is the position after the last row; 0 if there is none.
func (s *Sequence) End() int { return len(s.rows) }

// Clip is the part of a range in which there may be rows.
func (s *Sequence) Clip(r kv.Range) kv.Range {
	start := min(max(0, r.Start), len(s.rows))
	return kv.Range{Start: start, End: max(start, min(r.End, len(s.rows)))}
}

// All reports whether no row of the range is missing.
func (s *Sequence) All(r kv.Range) bool {
	if r.Start < 0 || r.End > len(s.rows) {
		return r.Len() == 0
	}
	for p := r.Start; p < r.End; p++ {
		if !s.rows[p].there {
			return false
		}
	}
	return true
}

// Any reports whether a row of the range is there.
func (s *Sequence) Any(r kv.Range) bool {
	r = s.Clip(r)
	for _, x := range s.rows[r.Start:r.End] {
		if x.there {
			return true
		}
	}
	return false
}

// Set adds rows from a position on.
func (s *Sequence) Set(from int, tokens ...kv.Token) {
	if n := from + len(tokens); len(tokens) > 0 && n > len(s.rows) {
		s.rows = append(s.rows, make([]row, n-len(s.rows))...)
	}
	for i, t := range tokens {
		s.rows[from+i] = row{t, true}
	}
}

// Copy adds the rows that o has in the range.
func (s *Sequence) Copy(o *Sequence, r kv.Range) {
	r = o.Clip(r)
	for p := r.Start; p < r.End; p++ {
		if x := o.rows[p]; x.there {
			s.Set(p, x.token)
		}
	}
}

// Remove takes the rows of the range away.
func (s *Sequence) Remove(r kv.Range) {
	r = s.Clip(r)
	clear(s.rows[r.Start:r.End])
	n := len(s.rows)
	for n > 0 && !s.rows[n-1].there {
		n--
	}
	s.rows = s.rows[:n]
}

// Parts is the first position at which the sequence has a row of another token than these; -1 if there is none.
func (s *Sequence) Parts(tokens []kv.Token) int {
	for p, x := range s.rows[:min(len(s.rows), len(tokens))] {
		if x.there && x.token != tokens[p] {
			return p
		}
	}
	return -1
}
