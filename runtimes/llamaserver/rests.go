package llamaserver

import (
	"cmp"
	"slices"
	"time"
)

// rests are cases that failed, and that are left alone for a while. Nothing is switched off for good: a case that rests is tried again after
// so many requests, or so long a time, whichever comes first. What fails then rests twice as long; what works is as if nothing had been.
// Guarded by the lock of whose they are.
type rests[K comparable] map[K]*rest

type rest struct {
	failed int       // in a row
	times  int       // how often it has rested since it last worked
	left   int       // requests that it still rests for
	until  time.Time // and when it is over at the latest
}

const (
	// maxFailed is how often in a row a case may fail before it rests: one surprise is none.
	maxFailed = 3
	// How long the first rest is. The longest has 32 times that.
	restRequests = 8
	restTime     = time.Minute
	maxDoubled   = 5
	// maxCases bounds what is remembered.
	maxCases = 64
)

// failed counts a failure of a case, and reports whether the case rests now. One that was only tried rests at once.
func (r rests[K]) failed(of K) bool {
	c := r.of(of)
	if c.failed++; c.failed < maxFailed && c.times == 0 {
		return false
	}
	c.begin()
	return true
}

// rest has a case rest that others have found wanting.
func (r rests[K]) rest(of K) { r.of(of).begin() }

// worked forgets what failed.
func (r rests[K]) worked(of K) { delete(r, of) }

// resting reports whether a case is to be left alone, and counts the request that asks.
func (r rests[K]) resting(of K) bool {
	c := r[of]
	if c == nil || !c.resting() {
		return false
	}
	c.left--
	return true
}

func (r rests[K]) of(of K) *rest {
	c := r[of]
	if c == nil {
		if len(r) >= maxCases {
			r.drop()
		}
		c = &rest{}
		r[of] = c
	}
	return c
}

// drop forgets the case whose rest was over first.
func (r rests[K]) drop() {
	var first K
	var c *rest
	for of, x := range r {
		if c == nil || x.until.Before(c.until) {
			first, c = of, x
		}
	}
	delete(r, first)
}

func (c *rest) begin() {
	n := 1 << min(c.times, maxDoubled)
	c.times++
	c.left, c.until = n*restRequests, time.Now().Add(time.Duration(n)*restTime)
}

func (c *rest) resting() bool { return c.left > 0 && time.Now().Before(c.until) }

// Resting is something that the front leaves alone for a while, since it did not work.
type Resting struct {
	Case     string        // what kind of requests: "chat with tools", "restores of 1024 tokens and more"
	Reason   string        // why, as in X-Dormouse
	Requests int           // after so many of them it is tried again
	Within   time.Duration // or after so long
}

// list says what rests, in words.
func (r rests[K]) list(reason string, words func(K) string) (out []Resting) {
	for of, c := range r {
		if c.resting() {
			out = append(out, Resting{words(of), reason, c.left, time.Until(c.until).Round(time.Second)})
		}
	}
	slices.SortFunc(out, func(a, b Resting) int { return cmp.Compare(a.Case, b.Case) })
	return out
}
