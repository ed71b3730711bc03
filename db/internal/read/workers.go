package read

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Workers bounds how many goroutines decode and encode for one store: its callers and, shared by all of them, one helper less than there
// are processors.
type Workers struct{ helpers chan struct{} }

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
