package recovery_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// killOp is an operation of the journal. It took effect, if at all, between begin and end.
type killOp struct {
	what       string
	chat, n    int
	name       string
	begin, end int
	acked      bool
}

// touches reports whether a deletion takes tokens of conversation c.
func (o *killOp) touches(c int) bool {
	return o.what == "del" && o.chat == c || o.what == "scope" && killScope(o.chat) == killScope(c)
}

type killJournal struct {
	ops   []*killOp
	clock int
}

// read adds what a child wrote before it was killed.
func (j *killJournal) read(t *testing.T, lines []string) {
	open := map[int]*killOp{}
	for _, l := range lines {
		j.clock++
		f := strings.Fields(l)
		if len(f) == 0 || f[0] == "r" {
			continue
		}
		if f[0] == "x" {
			t.Fatalf("child: %s", l)
		}
		id, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatalf("journal line %q", l)
		}
		switch f[0] {
		case "b":
			o := &killOp{what: f[2], begin: j.clock, end: math.MaxInt}
			if len(f) > 4 {
				o.chat, _ = strconv.Atoi(f[3])
				o.n, _ = strconv.Atoi(f[4])
			}
			if len(f) > 5 {
				o.name = f[5]
			}
			open[id] = o
			j.ops = append(j.ops, o)
		case "e", "f":
			open[id].end, open[id].acked = j.clock, f[0] == "e"
		}
	}
	j.clock++
	for _, o := range j.ops {
		o.end = min(o.end, j.clock)
	}
}

// atLeast is how much of conversation c must be stored: of each acknowledged put, what no deletion can have taken.
func (j *killJournal) atLeast(c int) int {
	best := 0
	for _, p := range j.ops {
		if p.what != "put" || p.chat != c || !p.acked {
			continue
		}
		n := p.n
		for _, d := range j.ops {
			if d.touches(c) && d.end > p.begin {
				n = min(n, d.n-16) // the block with the last deleted token goes
			}
		}
		best = max(best, n)
	}
	return best
}

// atMost is how much of it may be found: less than an acknowledged deletion that no put followed.
func (j *killJournal) atMost(c, whole int) int {
	most := whole
	for _, d := range j.ops {
		if !d.touches(c) || !d.acked {
			continue
		}
		after := false
		for _, p := range j.ops {
			after = after || p.what == "put" && p.chat == c && p.n >= d.n && p.end > d.begin
		}
		if !after {
			most = min(most, d.n-1)
		}
	}
	return most
}

// noteState is how long a note of model c must be, 0 if there is none; known is false if an operation was under way.
func (j *killJournal) noteState(c int, name string) (size int, known bool) {
	known = true
	for _, o := range j.ops {
		if o.what == "note" && o.name == name && o.chat == c {
			size, known = o.n, o.acked
		}
	}
	return size, known
}

// refState says what must hold of a ref: the op that set it last, or that there is none; known is false if an operation
// was under way.
func (j *killJournal) refState(name string) (set *killOp, known bool) {
	known = true
	for _, o := range j.ops { // the ops on one name come one after the other
		if o.name != name || o.what == "note" {
			continue
		}
		switch {
		case o.what == "ref" && o.acked:
			set, known = o, true
		case o.what == "unref" && o.acked:
			set, known = nil, true
		case o.end == j.clock || o.what == "ref":
			known = false
		}
	}
	if set != nil {
		for _, d := range j.ops {
			if d.touches(set.chat) && d.end > set.begin {
				known = false // it may have gone with its prefix
			}
		}
	}
	return set, known
}
