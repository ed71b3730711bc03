package trial

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
)

// FewTokens are not worth a restore, nor a save.
const FewTokens = 32

// Costs are what prefills and restores have taken so far. Restores are weighed by how many tokens they have: a short one takes a while for nothing but
// being one. Safe for concurrent use.
type Costs struct {
	mu      sync.Mutex
	prefill rate
	restore map[int]*rate // by size
	slow    Cases[gain]   // what takes longer than computing it
}

// sizeOf is the size of a restore: a power of two.
func sizeOf(tokens int) int { return bits.Len(uint(tokens)) }

// gain is a kind of restore: how large it is, and how much of it a slot lacks.
type gain struct{ size, lacking int }

func (g gain) String() string {
	return fmt.Sprintf("restores of %d to %d tokens for the sake of %d to %d", 1<<(g.size-1), 1<<g.size-1, 1<<(g.lacking-1), 1<<g.lacking-1)
}

// rate is what the last measurements have taken, in nanoseconds a token.
type rate struct{ last []measurement }

type measurement struct {
	took   time.Duration
	tokens int
}

func (m measurement) each() float64 { return float64(m.took) / float64(m.tokens) }

const (
	maxMeasured = 16
	fewMeasured = 3 // on less nothing is decided
)

func (r *rate) add(d time.Duration, tokens int) {
	if len(r.last) == maxMeasured {
		r.last = r.last[1:]
	}
	r.last = append(r.last, measurement{d, tokens})
}

// of is how long tokens take, by the measurements in the middle: a disk that spins up, or a machine that was suspended, says nothing of the next
// time.
func (r *rate) of(tokens int) time.Duration {
	if len(r.last) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(r.last), func(a, b measurement) int { return cmp.Compare(a.each(), b.each()) })
	n := len(sorted)
	fast, slow := n/4, n/4
	if n >= fewMeasured {
		slow = max(1, slow)
	}
	var sum measurement
	for _, m := range sorted[fast : n-slow] {
		sum.took += m.took
		sum.tokens += m.tokens
	}
	return time.Duration(sum.each() * float64(tokens))
}

// Computed notes how long it took to compute tokens.
func (c *Costs) Computed(d time.Duration, tokens int) {
	if tokens < FewTokens || d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefill.add(d, tokens)
}

// Restored notes what a restore took that a slot lacked some tokens of. One that was only tried, since others had taken too long, and has paid,
// makes an end of what the others say.
func (c *Costs) Restored(d time.Duration, tokens, lacking int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size, g := sizeOf(tokens), gain{sizeOf(tokens), sizeOf(lacking)}
	if c.restore == nil {
		c.restore = map[int]*rate{}
	}
	if c.restore[size] == nil {
		c.restore[size] = &rate{}
	}
	switch tried := c.slow.Times(g) > 0; {
	case tried && d < c.prefill.of(lacking):
		c.slow.Worked(g)
		c.restore[size].last = nil
	case tried:
		c.slow.Rest(g)
	}
	c.restore[size].add(d, tokens)
}

// Pays reports whether restoring tokens takes less than computing those of them that a slot lacks. As long as too little was measured to say,
// it does; and what does not is tried again now and then.
func (c *Costs) Pays(tokens, lacking int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := gain{sizeOf(tokens), sizeOf(lacking)}
	r := c.restore[g.size]
	if len(c.prefill.last) == 0 || r == nil || len(r.last) < fewMeasured || r.of(tokens) < c.prefill.of(lacking) {
		return true
	}
	if c.slow.Times(g) == 0 {
		c.slow.Rest(g)
	}
	return !c.slow.Resting(g)
}

// Resting returns the sizes that are not restored just now.
func (c *Costs) Resting() []Case {
	return c.slow.List(figures.TooSlow, gain.String)
}
