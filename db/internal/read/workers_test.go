package read

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Work that can wait rests while a restore is at work, and goes on when the last one has ended.
func TestRestWhileRestoring(t *testing.T) {
	w := NewWorkers()
	pace := w.PutPace()
	pace.Rest() // nothing to wait for
	pace.rest(time.Hour)

	var restores sync.WaitGroup
	begun, end := make(chan struct{}), [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	for _, e := range end {
		restores.Go(func() {
			w.Restores.Enter()
			defer w.Restores.Leave()
			begun <- struct{}{}
			<-e
		})
		<-begun
	}
	pace.Rest() // it has not worked long
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		pace.rest(time.Hour)
	}()
	close(end[0])
	select {
	case <-rested:
		t.Error("it went on beside a restore")
	case <-time.After(20 * time.Millisecond):
	}
	close(end[1])
	<-rested
	restores.Wait()
	pace.rest(time.Hour)
	if n := w.Restores.atWork.Load(); n != 0 || w.Restores.over != nil {
		t.Errorf("%d restores are at work after all have ended", n)
	}
}

// Puts go before what keeps house, and no put rests for another.
func TestRestWhilePutting(t *testing.T) {
	w := NewWorkers()
	w.Puts.Enter()
	put, house := w.PutPace(), w.HousePace()
	put.rest(time.Hour)
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		house.rest(time.Hour)
	}()
	select {
	case <-rested:
		t.Error("it went on beside a put")
	case <-time.After(20 * time.Millisecond):
	}
	w.Puts.Leave()
	<-rested

	w.Puts.Enter()
	w.Restores.Enter()
	put.rest(time.Millisecond) // each is over in time beside what does not end
	house.rest(time.Millisecond)
}

// Puts that are each too short for a rest owe it to the next one.
func TestSmallPutsRest(t *testing.T) {
	w := NewWorkers()
	for range 3 {
		w.Encode(1, func(int, *Pace) bool {
			time.Sleep(turn)
			return true
		})
	}
	if pace := w.PutPace(); time.Since(pace.began) < 3*turn || w.Puts.owed.Load() != 0 {
		t.Errorf("after three puts of %v another one has worked for %v", turn, time.Since(pace.began))
	}
}

// A restore has its helpers while those of a put rest.
func TestHelpersOfTheirOwn(t *testing.T) {
	w := NewWorkers()
	n := w.limit()
	together := func(run func(n int, each func()), meanwhile func()) { // n goroutines at a time
		var all sync.WaitGroup
		all.Add(n)
		run(n, func() {
			all.Done()
			all.Wait()
			meanwhile()
		})
	}
	put := func(n int, each func()) { w.Encode(n, func(int, *Pace) bool { each(); return true }) }
	restore := func(n int, each func()) { w.Decode(n, func(int) bool { each(); return true }) }
	var once sync.Once
	together(put, func() { once.Do(func() { together(restore, func() {}) }) })
	if w.Busy() != 0 {
		t.Errorf("%d helpers are at work", w.Busy())
	}
}

// A restore that is over has no part in the next one's quiet.
func TestRestoresOneAfterAnother(t *testing.T) {
	w := NewWorkers()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			pace := w.PutPace()
			for i := range 200 {
				if i%2 == 0 {
					w.Restores.Enter()
					w.Decode(3, func(int) bool { return true })
					w.Restores.Leave()
				} else {
					pace.rest(time.Microsecond)
					pace.Rest()
				}
			}
		})
	}
	all.Wait()
	if w.Busy() != 0 {
		t.Errorf("%d helpers are at work", w.Busy())
	}
}

// A panic in whoever's part of the work is the caller's, who can recover, once nobody is at work any more.
func TestCrewPanics(t *testing.T) {
	for _, at := range []int{0, 1, 99} {
		c := Crew{helpers: make(chan struct{}, 2)}
		var working atomic.Int64
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(toText(p), "broken") || working.Load() != 0 {
					t.Errorf("at %d: recovered %v, and %d are at work", at, p, working.Load())
				}
			}()
			c.run(100, func() (do func(int) bool, end func()) {
				working.Add(1)
				return func(i int) bool {
					if i == at {
						panic("broken")
					}
					return true
				}, func() { working.Add(-1) }
			})
		}()
		if len(c.helpers) != 0 {
			t.Errorf("%d helpers are taken", len(c.helpers))
		}
	}
}

func toText(p any) string { s, _ := p.(string); return s }
