package read

import (
	"sync"
	"testing"
	"time"
)

// Work that can wait rests while a restore is at work, and goes on when the last one has ended.
func TestRestWhileRestoring(t *testing.T) {
	w := NewWorkers()
	pace := w.Pace()
	pace.Rest() // nothing to wait for
	pace.rest(time.Hour)

	var restores sync.WaitGroup
	begun, end := make(chan struct{}), [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	for _, e := range end {
		restores.Go(func() {
			w.First(1, func(int) bool {
				begun <- struct{}{}
				<-e
				return true
			})
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
	if n := w.restores.Load(); n != 0 || w.quiet != nil {
		t.Errorf("%d restores are at work after all have ended", n)
	}
}

// A restore that is over has no part in the next one's quiet.
func TestRestoresOneAfterAnother(t *testing.T) {
	w := NewWorkers()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			pace := w.Pace()
			for i := range 200 {
				if i%2 == 0 {
					w.First(3, func(int) bool { return true })
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
