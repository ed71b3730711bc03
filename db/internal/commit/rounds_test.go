package commit

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Who comes while a round is under way shares the next one with all others, and gets its error; a sync that began before a call is not its own.
func TestRoundsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRounds()
		failed := errors.New("no disk")
		var syncs atomic.Int32
		started, release := make(chan int32, 2), make(chan struct{})
		round := func() error {
			n := syncs.Add(1)
			started <- n
			<-release
			if n == 2 {
				return failed
			}
			return nil
		}
		var all sync.WaitGroup
		all.Go(func() {
			if err := x.wait(round); err != nil {
				t.Errorf("the first: %v", err)
			}
		})
		<-started
		for range 5 {
			all.Go(func() {
				if err := x.wait(round); !errors.Is(err, failed) {
					t.Errorf("one that came during the first round: %v", err)
				}
			})
		}
		synctest.Wait()
		release <- struct{}{}
		<-started
		synctest.Wait()
		release <- struct{}{}
		all.Wait()
		if n := syncs.Load(); n != 2 {
			t.Errorf("%d syncs, expected 2", n)
		}
	})
}

// A round waits for as many puts as were in the last one, if so many are on their way, and no longer than an eighth of a sync; nobody waits for puts that
// ended otherwise, and one that puts alone waits for nobody.
func TestRoundsGather(t *testing.T) {
	const took = 80 * time.Millisecond
	for name, c := range map[string]struct {
		last, coming int
		arrive       []time.Duration // of those that are coming; negative: it gives up then
		waits        time.Duration
		size         int
	}{
		"alone":        {last: 1, waits: 0, size: 1},
		"nobody comes": {last: 4, waits: 0, size: 1},
		"they come":    {last: 3, coming: 2, arrive: []time.Duration{1, 2}, waits: 2, size: 3},
		"one gives up": {last: 3, coming: 2, arrive: []time.Duration{1, -3}, waits: 3, size: 2},
		"too late":     {last: 2, coming: 1, arrive: []time.Duration{30}, waits: 10, size: 1},
		"others stay":  {last: 1, coming: 1, arrive: []time.Duration{30}, waits: 0, size: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newRounds()
				x.size, x.took = c.last, took
				sync := func() error { return nil }
				for _, at := range c.arrive {
					end := x.putBegins()
					go func() {
						time.Sleep(max(at, -at) * time.Millisecond)
						if at >= 0 {
							x.coming.Add(-1)
							x.wait(sync)
							x.coming.Add(1)
						}
						end()
					}()
				}
				start := time.Now()
				x.wait(sync)
				waited := time.Since(start)
				x.turn <- struct{}{}
				size := x.size
				<-x.turn
				if waited != c.waits*time.Millisecond || size != c.size {
					t.Errorf("waited %v for %d, expected %d ms and %d", waited, size, c.waits, c.size)
				}
				time.Sleep(time.Second)
				if n := x.coming.Load(); n != 0 {
					t.Errorf("%d puts are counted afterwards", n)
				}
			})
		})
	}
}

// Where who syncs for all does not come to the end of it (a Logger of the host's panics), nobody takes that for a sync.
func TestRoundThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRounds()
		x.turn <- struct{}{} // another round is under way
		var all sync.WaitGroup
		var acknowledged atomic.Int32
		for range 3 {
			all.Go(func() {
				defer func() { recover() }()
				if x.wait(func() error { panic("a logger's") }) == nil {
					acknowledged.Add(1)
				}
			})
		}
		synctest.Wait()
		<-x.turn
		all.Wait()
		if n := acknowledged.Load(); n > 0 {
			t.Errorf("%d were told that it was durable", n)
		}
		if err := x.wait(func() error { return nil }); err != nil {
			t.Errorf("the next round: %v", err)
		}
	})
}
