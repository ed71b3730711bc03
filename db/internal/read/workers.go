package read

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Workers bounds how many goroutines decode and encode for one store, and says who gives way to whom: puts to restores, for which somebody waits
// who has not read a word yet, and what keeps house (deletions, moving records, filling a Bloom filter) to both.
type Workers struct {
	Restores, Puts Crew
}

// Crew are those who match and restore, or those who put: the callers, and shared by all of them one helper less than there are processors. Each
// kind has helpers of its own, so that a restore does not go without because those of a put rest.
type Crew struct {
	helpers chan struct{}
	atWork  atomic.Int32
	mu      sync.Mutex
	over    chan struct{} // closed when the last of them leaves; nil: nobody waits for that
	left    atomic.Int64  // when somebody left, in nanoseconds of the clock of born
	owed    atomic.Int64  // nanoseconds that puts worked without a rest, each too short for one
}

// NewWorkers returns the workers of a store.
func NewWorkers() *Workers {
	n := max(0, runtime.GOMAXPROCS(0)-1)
	return &Workers{Restores: Crew{helpers: make(chan struct{}, n)}, Puts: Crew{helpers: make(chan struct{}, n)}}
}

// Busy is how many are at work, helpers included.
func (c *Workers) Busy() int {
	n := 0
	for _, crew := range []*Crew{&c.Restores, &c.Puts} {
		n += len(crew.helpers) + int(crew.atWork.Load())
	}
	return n
}

// limit is how many goroutines may work for one restore.
func (c *Workers) limit() int { return cap(c.Restores.helpers) + 1 }

// Decode calls do for every i in [0, n), on the caller's goroutine and on as many helpers as are free, in about that order. It returns
// when all are done. After a false no further one is begun.
func (c *Workers) Decode(n int, do func(i int) bool) {
	c.Restores.run(n, func() (func(int) bool, func()) { return do, func() {} })
}

// Encode is the same for a put, whose goroutines have a pace each.
func (c *Workers) Encode(n int, do func(i int, pace *Pace) bool) {
	c.Puts.run(n, func() (func(int) bool, func()) {
		pace := c.PutPace()
		return func(i int) bool { return do(i, &pace) }, func() { c.Puts.owed.Add(int64(time.Since(pace.began))) }
	})
}

// run has each of its goroutines ask for what it does, and for what it does in the end.
func (c *Crew) run(n int, worker func() (do func(i int) bool, end func())) {
	var next atomic.Int64
	var stop atomic.Bool
	work := func() {
		do, end := worker()
		defer end()
		for !stop.Load() {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			if !do(i) {
				stop.Store(true)
			}
		}
	}
	var wait sync.WaitGroup
	var broke atomic.Value // a helper's panic: the caller can recover from it, as from its own
	defer func() {
		stop.Store(true)
		wait.Wait() // helpers use the caller's memory
		if p := broke.Load(); p != nil {
			panic(p)
		}
	}()
	for range min(n-1, cap(c.helpers)) {
		select {
		case c.helpers <- struct{}{}:
			wait.Go(func() {
				defer func() { <-c.helpers }()
				defer func() {
					if p := recover(); p != nil {
						stop.Store(true)
						broke.CompareAndSwap(nil, fmt.Sprintf("%v\n\n%s", p, debug.Stack()))
					}
				}()
				work()
			})
			continue
		default:
		}
		break // the others are busy
	}
	work()
}

// Enter says that somebody is at work, until they Leave.
func (c *Crew) Enter() { c.atWork.Add(1) }

// Leave ends what Enter began.
func (c *Crew) Leave() {
	c.left.Store(int64(time.Since(born)))
	if c.atWork.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil && c.atWork.Load() == 0 {
		close(c.over)
		c.over = nil
	}
}

// wait returns true when nobody is at work, and false when enough says so.
func (c *Crew) wait(enough <-chan time.Time) bool {
	c.mu.Lock()
	if c.atWork.Load() == 0 {
		c.mu.Unlock()
		return true
	}
	if c.over == nil {
		c.over = make(chan struct{})
	}
	over := c.over
	c.mu.Unlock()
	select {
	case <-over:
		return true
	case <-enough:
		return false
	}
}

// Pace is how one goroutine's work gives way to that of others.
type Pace struct {
	to    []*Crew   // who goes before it
	began time.Time // working, after the last rest
}

// PutPace begins the work of a put, or of what a put waits for, which gives way to restores. It goes on from what small puts left.
func (c *Workers) PutPace() Pace {
	return Pace{to: []*Crew{&c.Restores}, began: time.Now().Add(-time.Duration(c.Puts.owed.Swap(0)))}
}

// HousePace begins work that nobody waits for, or that is long: it gives way to restores and puts.
func (c *Workers) HousePace() Pace {
	return Pace{to: []*Crew{&c.Restores, &c.Puts}, began: time.Now()}
}

// A goroutine works for turn at a stretch: it lines up behind all that can run, so no more often than others notice. While somebody who goes
// before it is at work, it rests so many times as long as it worked. So two of them, which all processors of the smallest machine are, take
// a half of one; none rests longer than maxRest.
const (
	turn      = time.Millisecond / 5
	restShare = 3
	maxRest   = 10 * time.Millisecond
	lately    = 100 * time.Millisecond
)

var born = time.Now() // the clock of Crew.left

// Rest is called between two pieces of work, which are short: most take less than a millisecond.
func (p *Pace) Rest() {
	worked := time.Since(p.began)
	if worked < turn {
		return
	}
	// Who has just begun does not wait for the end of a time slice: neither for the goroutine's processor nor, where one may well have begun that
	// nobody knows of yet, for the thread's: that one costs a time slice wherever other programs compute.
	if slices.ContainsFunc(p.to, func(c *Crew) bool {
		return c.atWork.Load() > 0 || c.left.Load() > 0 && time.Since(born)-time.Duration(c.left.Load()) < lately
	}) {
		yield()
	}
	runtime.Gosched()
	p.rest(min(maxRest, restShare*worked))
	p.began = time.Now()
}

func (p *Pace) rest(long time.Duration) {
	if !slices.ContainsFunc(p.to, func(c *Crew) bool { return c.atWork.Load() > 0 }) {
		return
	}
	enough := time.NewTimer(long)
	defer enough.Stop()
	for _, c := range p.to {
		if !c.wait(enough.C) {
			return
		}
	}
}
