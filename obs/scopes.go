package obs

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
)

const (
	maxModels = 24 // with a series of their own
	other     = "other"
	shared    = "shared"

	// Counting scopes reads the whole index: it is done at most so often, and for at most a twentieth of the time.
	scopesEvery = time.Minute
	scopesShare = 20
	// scopesWait is how long a scrape waits for it; then it gets what was counted before.
	scopesWait = 2 * time.Second
	// maxScopes are counted one by one; of a store with more, those that are met later are in "other".
	maxScopes = 100_000
)

type modelTotal struct {
	name, fingerprint string
	blocks, bytes     int64
}

// boundModels are the largest models, and all others as one.
func boundModels(all []db.ModelStats) (out []modelTotal) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b db.ModelStats) int { return cmp.Compare(b.Bytes, a.Bytes) })
	rest := modelTotal{name: other, fingerprint: other}
	for i, m := range all {
		if i < maxModels {
			out = append(out, modelTotal{figures.Name(m.Descriptor.Name), m.Fingerprint.String()[:12], m.Blocks, m.Bytes})
		} else {
			rest.blocks += m.Blocks
			rest.bytes += m.Bytes
		}
	}
	if len(all) > maxModels {
		out = append(out, rest)
	}
	return out
}

type scopeBytes struct {
	model, fingerprint, scope string
	bytes                     int64
}

// scopeCount counts bytes by scope now and then. The zero value is ready.
type scopeCount struct {
	mu    sync.Mutex
	store *db.Store
	last  []scopeBytes
	next  time.Time     // when it is counted again
	busy  chan struct{} // closed when the count that is under way has ended; nil: none is
}

// of is what was counted last, at most a minute ago or so.
func (c *scopeCount) of(s *db.Store, models []db.ModelStats, most int) []scopeBytes {
	c.mu.Lock()
	if c.store != s {
		c.store, c.last, c.next = s, nil, time.Time{}
	}
	if c.busy == nil && time.Now().After(c.next) {
		c.busy = make(chan struct{})
		go c.count(s, models, most, c.busy)
	}
	busy := c.busy
	c.mu.Unlock()
	if busy != nil {
		wait := time.NewTimer(scopesWait)
		defer wait.Stop()
		select {
		case <-busy:
		case <-wait.C:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *scopeCount) count(s *db.Store, models []db.ModelStats, most int, done chan struct{}) {
	began := time.Now()
	out, err := countScopes(s, models, most)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = nil
	close(done)
	if c.store != s {
		return
	}
	c.next = time.Now().Add(max(scopesEvery, scopesShare*took))
	if err == nil { // else it was closed or suspended meanwhile
		c.last = out
	}
}

// countScopes adds up the records of each model and scope: of each model what is shared, its largest scopes, and the rest.
func countScopes(s *db.Store, models []db.ModelStats, most int) (out []scopeBytes, err error) {
	type key struct {
		model kv.Fingerprint
		scope kv.ScopeID
	}
	sums := map[key]int64{}
	rest := map[kv.Fingerprint]int64{}
	for b, err := range s.Blocks(context.Background()) {
		if err != nil {
			return nil, err
		}
		k := key{b.Model, b.Scope}
		if _, known := sums[k]; known || len(sums) < maxScopes || b.Scope.IsShared() {
			sums[k] += b.Bytes
		} else {
			rest[b.Model] += b.Bytes
		}
	}
	drawn := map[kv.Fingerprint]bool{}
	models = slices.Clone(models)
	slices.SortStableFunc(models, func(a, b db.ModelStats) int { return cmp.Compare(b.Bytes, a.Bytes) })
	names := map[kv.Fingerprint]string{}
	for i, m := range models {
		drawn[m.Fingerprint] = i < maxModels
		names[m.Fingerprint] = figures.Name(m.Descriptor.Name)
	}
	keys := make([]key, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a.model.String(), b.model.String()), cmp.Compare(a.scope.String(), b.scope.String()))
	})
	total := map[scopeBytes]int64{} // by labels
	own := map[kv.Fingerprint]int{}
	for _, k := range keys {
		x := scopeBytes{model: other, fingerprint: other, scope: other}
		if drawn[k.model] {
			x.model, x.fingerprint = names[k.model], k.model.String()[:12]
		}
		switch {
		case k.scope.IsShared():
			x.scope = shared
		case drawn[k.model] && own[k.model] < most:
			own[k.model]++
			x.scope = k.scope.String()[:12]
		}
		total[x] += sums[k]
	}
	for fp, n := range rest {
		x := scopeBytes{model: other, fingerprint: other, scope: other}
		if drawn[fp] {
			x.model, x.fingerprint = names[fp], fp.String()[:12]
		}
		total[x] += n
	}
	for x, n := range total {
		x.bytes = n
		out = append(out, x)
	}
	return out, nil
}
