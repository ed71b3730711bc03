package hashed

import (
	"github.com/dormousekv/dormouse/kv"
)

// Fail makes the next such call return err, but for so many that go well before it. It changes nothing then. Nil takes that back.
func (r *Runtime) Fail(c Call, after int, err error) {
	defer r.look()()
	r.fails[c] = failure{err, after}
}

// Stats returns what was done since New.
func (r *Runtime) Stats() Stats {
	defer r.look()()
	return r.stats
}

// Used is the number of cells that some sequence has.
func (r *Runtime) Used() int {
	defer r.look()()
	return r.used
}

// Live is the number of rows of each sequence that has any.
func (r *Runtime) Live() map[int]int {
	defer r.look()()
	live := map[int]int{}
	for seq, have := range r.seqs {
		if len(have) > 0 {
			live[seq] = len(have)
		}
	}
	return live
}

// Rows are those that a sequence has, in order of position.
func (r *Runtime) Rows(seq int) []Seen {
	defer r.look()()
	var rows []Seen
	for _, c := range r.seqs[seq] {
		rows = append(rows, c.Seen)
	}
	return rows
}

// Positions are where a sequence has rows.
func (r *Runtime) Positions(seq int) []kv.Range {
	var out []kv.Range
	for _, s := range r.Rows(seq) {
		if n := len(out); n > 0 && out[n-1].End == s.Pos {
			out[n-1].End++
		} else {
			out = append(out, kv.Range{Start: s.Pos, End: s.Pos + 1})
		}
	}
	return out
}
