package llamaserver

import (
	"sync"
	"time"
)

// fewTokens are not worth a restore, nor a save.
const fewTokens = 32

// costs are what prefills and restores have taken so far. Safe for concurrent use.
type costs struct {
	mu               sync.Mutex
	prefill, restore rate
}

// rate is a running mean of nanoseconds a token; old figures count for less and less.
type rate struct{ nanos, tokens float64 }

func (r *rate) add(d time.Duration, tokens int) {
	const keep = 0.8
	r.nanos, r.tokens = keep*r.nanos+float64(d), keep*r.tokens+float64(tokens)
}

func (r rate) of(tokens int) time.Duration {
	if r.tokens == 0 {
		return 0
	}
	return time.Duration(r.nanos / r.tokens * float64(tokens))
}

func (c *costs) computed(d time.Duration, tokens int) {
	if tokens < fewTokens || d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefill.add(d, tokens)
}

func (c *costs) restored(d time.Duration, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restore.add(d, tokens)
}

// pays reports whether restoring tokens takes less than computing those of them that a slot lacks. As long as nothing was
// measured, it does.
func (c *costs) pays(tokens, lacking int) bool {
	if lacking < fewTokens {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prefill.tokens == 0 || c.restore.tokens == 0 || c.restore.of(tokens) < c.prefill.of(lacking)
}
