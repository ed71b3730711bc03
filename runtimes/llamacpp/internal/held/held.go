package held

import (
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// Positions is how many there are: a sequence takes four bytes for each up to its last row, holes included.
const Positions = 1 << 24

// none stands where there is no row.
const none = math.MinInt32

// Sequence is the tokens of one sequence. Positions may have holes.
type Sequence struct {
	tokens []kv.Token // up to the last row
}

// End is the position after the last row; 0 if there is none.
func (s *Sequence) End() int { return len(s.tokens) }

// Clip is the part of a range in which there may be rows.
func (s *Sequence) Clip(r kv.Range) kv.Range {
	start := min(max(0, r.Start), len(s.tokens))
	return kv.Range{Start: start, End: max(start, min(r.End, len(s.tokens)))}
}

// All reports whether no row of the range is missing.
func (s *Sequence) All(r kv.Range) bool {
	in := s.Clip(r)
	if in.Len() < r.Len() {
		return false
	}
	for _, t := range s.tokens[in.Start:in.End] {
		if t == none {
			return false
		}
	}
	return true
}

// Any reports whether a row of the range is there.
func (s *Sequence) Any(r kv.Range) bool {
	r = s.Clip(r)
	for _, t := range s.tokens[r.Start:r.End] {
		if t != none {
			return true
		}
	}
	return false
}

// Set adds rows from a position on. They end before Positions.
func (s *Sequence) Set(from int, tokens ...kv.Token) {
	for len(tokens) > 0 && len(s.tokens) < from+len(tokens) {
		s.tokens = append(s.tokens, none)
	}
	copy(s.tokens[min(from, len(s.tokens)):], tokens)
}

// Copy adds the rows that o has in the range.
func (s *Sequence) Copy(o *Sequence, r kv.Range) {
	r = o.Clip(r)
	for p := r.Start; p < r.End; p++ {
		if t := o.tokens[p]; t != none {
			s.Set(p, t)
		}
	}
}

// Remove takes the rows of the range away.
func (s *Sequence) Remove(r kv.Range) {
	r = s.Clip(r)
	for p := r.Start; p < r.End; p++ {
		s.tokens[p] = none
	}
	n := len(s.tokens)
	for n > 0 && s.tokens[n-1] == none {
		n--
	}
	s.tokens = s.tokens[:n]
}

// Parts is the first position at which the sequence has a row of another token than these; -1 if there is none.
func (s *Sequence) Parts(tokens []kv.Token) int {
	for p, t := range s.tokens[:min(len(s.tokens), len(tokens))] {
		if t != none && t != tokens[p] {
			return p
		}
	}
	return -1
}
