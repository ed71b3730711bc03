package conformance

import (
	"errors"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// After some hundred calls in any order, a sequence has the rows that it should: a copy of them answers the same. And when all are taken
// away, every cell is free.
func leaks(c *check) {
	l := c.r.Limits()
	const n = 4
	type row struct{ id int } // cells, by what was put there
	has := make([]map[int]*row, n)
	for i := range has {
		has[i] = map[int]*row{}
	}
	used := func() int {
		cells := map[*row]bool{}
		for _, h := range has {
			for _, r := range h {
				cells[r] = true
			}
		}
		return len(cells)
	}
	last := func(seq int) int {
		end := -1
		for pos := range has[seq] {
			end = max(end, pos)
		}
		return end
	}
	stored := kv.Tokens(c.tokens(64)...)
	c.fill(0, 0, stored.Tokens)
	c.must(c.r.Store(background, stored, 0, span(0, 64)))
	c.clear(0)
	for from := 0; from < l.Cells/2; from += 16 {
		c.fill(3, from, c.tokens(16))
		for i := range 16 {
			has[3][from+i] = &row{}
		}
	}
	full := 0
	for step := range 400 {
		seq, to := c.rng.IntN(n), c.rng.IntN(n)
		start := c.rng.IntN(l.Cells / 2)
		in := span(start, start+c.rng.IntN(l.Cells/6))
		switch c.rng.IntN(6) {
		case 0, 1:
			tokens := c.tokens(1 + c.rng.IntN(min(32, l.Batch)))
			from := last(seq) + 1
			err := c.r.Decode(background, stepsOf(seq, from, tokens))
			if used()+len(tokens) > l.Cells {
				if !errors.Is(err, kv.ErrFull) {
					c.Fatalf("operation %d: %d steps, %d of %d cells are in use: %v, want kv.ErrFull", step, len(tokens), used(), l.Cells, err)
				}
				full++
				break
			}
			if err != nil {
				c.Fatalf("operation %d: %d steps, %d of %d cells are in use: %v", step, len(tokens), used(), l.Cells, err)
			}
			for i := range tokens {
				has[seq][from+i] = &row{step}
			}
		case 2:
			taken := false
			for pos := range has[to] {
				taken = taken || pos >= in.Start && pos < in.End
			}
			if taken || seq == to {
				c.must(c.r.Remove(to, in))
				forget(has[to], in)
				break
			}
			c.must(c.r.Copy(seq, to, in))
			for pos, r := range has[seq] {
				if pos >= in.Start && pos < in.End {
					has[to][pos] = r
				}
			}
		case 3:
			if c.rng.IntN(8) == 0 {
				in = whole
			}
			c.must(c.r.Remove(seq, in))
			forget(has[seq], in)
		case 4:
			c.must(c.r.Remove(seq, span(0, 64)))
			forget(has[seq], span(0, 64))
			part := span(c.rng.IntN(30), 30+c.rng.IntN(34))
			before := used()
			got, err := c.r.Load(background, stored, seq, []kv.Range{part})
			if errors.Is(err, kv.ErrFull) && before+part.Len() > l.Cells {
				full++
				break
			}
			if err != nil || got != 64 {
				c.Fatalf("operation %d: load: %d, %v; %d of %d cells are in use", step, got, err, before, l.Cells)
			}
			for pos := part.Start; pos < part.End; pos++ {
				has[seq][pos] = &row{step}
			}
		case 5: // a copy by ranges answers as the sequence does
			end := last(seq)
			if end < 0 || used()+2 > l.Cells {
				break
			}
			to = (seq + 1) % n
			c.must(c.r.Remove(to, whole))
			clear(has[to])
			positions := slices.Sorted(maps.Keys(has[seq]))
			for i := 0; i < len(positions); {
				j := i + 1
				for j < len(positions) && positions[j] == positions[j-1]+1 {
					j++
				}
				c.copy(seq, to, span(positions[i], positions[j-1]+1))
				i = j
			}
			token := c.tokens(1)
			c.same("a copy by ranges", c.decode(seq, end+1, token, 1)[0], c.decode(to, end+1, token, 1)[0])
			c.clear(to)
			has[seq][end+1] = &row{step}
		}
	}
	for seq := range n {
		c.clear(seq)
	}
	for seq, left := 0, l.Cells; left > 0; seq = (seq + 1) % n {
		k := min(left, (l.Cells+n-1)/n)
		c.fill(seq, 0, c.tokens(k))
		left -= k
	}
	if err := c.r.Decode(background, stepsOf(0, (l.Cells+n-1)/n, c.tokens(1))); !errors.Is(err, kv.ErrFull) {
		c.Errorf("one more than %d cells: %v, want kv.ErrFull", l.Cells, err)
	}
	c.Logf("400 operations, %d of them met a full cache", full)
}

func forget[V any](m map[int]V, in kv.Range) {
	maps.DeleteFunc(m, func(pos int, _ V) bool { return pos >= in.Start && pos < in.End })
}
