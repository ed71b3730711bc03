package read

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Workers bounds how many goroutines decode and encode for one store: its callers and, shared by all of them, one helper less than there
// are processors.
type Workers struct {
	helpers  chan struct{}
	restores atomic.Int32 // at work
	mu       sync.Mutex
	quiet    chan struct{} // closed when the last of them ends; nil while there is none
}

// NewWorkers returns the workers of a store.
func NewWorkers() *Workers {
	return &Workers{helpers: make(chan struct{}, max(0, runtime.GOMAXPROCS(0)-1))}
}

// Busy is how many helpers are at work.
func (c *Workers) Busy() int { return len(c.helpers) }

// limit is how many goroutines may work for one caller.
func (c *Workers) limit() int { return cap(c.helpers) + 1 }

// Run calls do for every i in [0, n), on the caller's goroutine and on as many helpers as are free, each with a worker of
// its own, in about that order. It returns when all are done. After a false no further one is begun.
func (c *Workers) Run(n int, do func(i int) bool) {
	var next atomic.Int64
	var stop atomic.Bool
	work := func() {
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
	for range min(n-1, cap(c.helpers)) {
		select {
		case c.helpers <- struct{}{}:
			wait.Go(func() {
				defer func() { <-c.helpers }()
				work()
			})
			continue
		default:
		}
		break // the others are busy
	}
	work()
	wait.Wait()
}

// First is Run for a restore, to which all work that has a [Pace] gives way.
func (c *Workers) First(n int, do func(i int) bool) {
	c.mu.Lock()
	if c.restores.Add(1) == 1 {
		c.quiet = make(chan struct{})
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.restores.Add(-1) == 0 {
			close(c.quiet)
			c.quiet = nil
		}
	}()
	c.Run(n, do)
}

// Pace is how one goroutine's work on what nobody waits for, putting and moving records, gives way to restores, for which somebody does.
type Pace struct {
	workers *Workers
	began   time.Time // of the piece of work that is done
}

// Pace begins a piece of work.
func (c *Workers) Pace() Pace { return Pace{c, time.Now()} }

// While a restore is at work, a goroutine rests so many times as long as it worked. So two of them, which all processors of the smallest machine
// are, take a half of one; none rests longer than maxRest.
const (
	restShare = 3
	maxRest   = 10 * time.Millisecond
)

// Rest is called between two pieces of work that take well below a millisecond each.
func (p *Pace) Rest() {
	runtime.Gosched() // a restore that has just begun does not wait for the end of a time slice
	if p.workers.restores.Load() > 0 {
		p.rest(min(maxRest, restShare*time.Since(p.began)))
	}
	p.began = time.Now()
}

func (p *Pace) rest(long time.Duration) {
	p.workers.mu.Lock()
	quiet := p.workers.quiet
	p.workers.mu.Unlock()
	if quiet == nil {
		return
	}
	enough := time.NewTimer(long)
	defer enough.Stop()
	select {
	case <-quiet:
	case <-enough.C:
	}
}
