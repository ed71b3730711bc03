package trial

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Cases are things that failed, and that are left alone for a while. Nothing is switched off for good: a case that rests is tried again after
// some requests or some time, whichever comes first. If it fails again, it rests twice as long. If it works, its failures are forgotten. The zero value is
// ready. Safe for concurrent use.
type Cases[K comparable] struct {
	mu sync.Mutex
	of map[K]*rest
}

type rest struct {
	failed int       // in a row
	times  int       // how often it has rested since it last worked
	left   int       // requests that it still rests for
	until  time.Time // and when it is over at the latest
}

const (
	// maxFailed is how often in a row a case may fail before it rests: one surprise is none.
	MaxFailed = 3
	// How long the first rest is. The longest has 32 times that.
	RestRequests = 8
	RestTime     = time.Minute
	MaxDoubled   = 5
	// maxCases bounds what is remembered.
	MaxCases = 64
)

// Failed counts a failure of a case, and reports whether the case rests now. One that was only tried rests at once.
func (r *Cases[K]) Failed(k K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.find(k)
	if c.failed++; c.failed < MaxFailed && c.times == 0 {
		return false
	}
	c.begin()
	return true
}

// Rest has a case rest at once.
func (r *Cases[K]) Rest(k K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.find(k).begin()
}

// Worked forgets the failures of a case.
func (r *Cases[K]) Worked(k K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, k)
}

// WorkedAll forgets the failures of all cases that which names.
func (r *Cases[K]) WorkedAll(which func(K) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.of {
		if which(k) {
			delete(r.of, k)
		}
	}
}

// Resting reports whether a case is to be left alone, and counts the request that asks.
func (r *Cases[K]) Resting(k K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[k]
	if c == nil || !c.resting() {
		return false
	}
	c.left--
	return true
}

// Times returns how often a case has rested since it last worked.
func (r *Cases[K]) Times(k K) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.of[k]; c != nil {
		return c.times
	}
	return 0
}

// find is what is known of a case. The caller holds mu.
func (r *Cases[K]) find(k K) *rest {
	c := r.of[k]
	if c == nil {
		if r.of == nil {
			r.of = map[K]*rest{}
		}
		if len(r.of) >= MaxCases {
			r.drop()
		}
		c = &rest{}
		r.of[k] = c
	}
	return c
}

// drop forgets the case whose rest was over first. The caller holds mu.
func (r *Cases[K]) drop() {
	var first K
	var c *rest
	for k, x := range r.of {
		if c == nil || x.until.Before(c.until) {
			first, c = k, x
		}
	}
	delete(r.of, first)
}

func (c *rest) begin() {
	n := 1 << min(c.times, MaxDoubled)
	c.times++
	c.left, c.until = n*RestRequests, time.Now().Add(time.Duration(n)*RestTime)
}

func (c *rest) resting() bool { return c.left > 0 && time.Now().Before(c.until) }

// Case is a case that rests now.
type Case struct {
	Name     string        // of the case
	Reason   string        // a code of figures
	Requests int           // after so many of them it is tried again
	Within   time.Duration // or after so long
}

// List returns the cases that rest, by name.
func (r *Cases[K]) List(reason string, name func(K) string) (out []Case) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, c := range r.of {
		if c.resting() {
			out = append(out, Case{name(k), reason, c.left, time.Until(c.until).Round(time.Second)})
		}
	}
	slices.SortFunc(out, func(a, b Case) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// size returns how many cases are remembered.
func (r *Cases[K]) Size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.of)
}
