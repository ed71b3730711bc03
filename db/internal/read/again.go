package read

import (
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
)

const (
	againBytes = 256 << 20 // at most so much waits
	againStep  = 1 << 20   // is asked for at once
	againPause = 5 * time.Millisecond
)

// Again has the system read into its page cache what was read around it and is likely to be wanted again, in no hurry: a megabyte at a
// time, at the priority of an idle disk, and not beside a cold restore. Safe for concurrent use.
type Again struct {
	Segments *segments.Set
	Busy     func() bool // a cold restore is under way

	mu     lock.Mutex[lock.Reads] // guards all below
	places []segments.Loc
	bytes  int64
	stop   chan struct{} // closed by Drop; nil: nobody begins anything more
	ended  chan struct{} // closed when the last who was at work, and all before, have ended; nil: nobody ever was
}

// Add has places read ahead after all those that wait.
func (a *Again) Add(places []segments.Loc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range places {
		if a.bytes+at.Length > againBytes {
			break
		}
		a.bytes += at.Length
		a.places = append(a.places, at)
	}
	if a.stop == nil && len(a.places) > 0 {
		stop, before, ended := make(chan struct{}), a.ended, make(chan struct{})
		a.stop, a.ended = stop, ended
		go func() {
			defer close(ended)
			if before != nil {
				<-before
			}
			vfs.Idly(func() { a.work(stop) })
		}()
	}
}

// Drop forgets what waits, and returns when nothing is asked for any more.
func (a *Again) Drop() {
	a.mu.Lock()
	a.places, a.bytes = nil, 0
	if a.stop != nil {
		close(a.stop)
		a.stop = nil
	}
	ended := a.ended
	a.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// Waiting is how many bytes wait.
func (a *Again) Waiting() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

func (a *Again) work(stop chan struct{}) {
	tick := time.NewTicker(againPause)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if a.Busy() {
			continue
		}
		at, ok := a.next(stop)
		if !ok {
			return
		}
		a.Segments.ReadAhead(at)
	}
}

// next takes neighbours from the places that wait, or a part of a long one; ok is false when there is nothing left to do.
func (a *Again) next(stop chan struct{}) (at segments.Loc, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != stop {
		return at, false
	}
	n := 0
	for ; n < len(a.places) && at.Length < againStep; n++ {
		next := a.places[n]
		if n > 0 && (next.Segment != at.Segment || next.Offset != at.End()) {
			break
		}
		if n == 0 {
			at = next
		} else {
			at.Length += next.Length
		}
	}
	a.places = a.places[n:]
	if at.Length > againStep {
		rest := at
		rest.Offset, rest.Length = at.Offset+againStep, at.Length-againStep
		a.places = append([]segments.Loc{rest}, a.places...)
		at.Length = againStep
	}
	a.bytes -= at.Length
	if n == 0 {
		a.stop = nil
	}
	return at, n > 0
}

// again has what the run read around the page cache read into it, if it is likely to be wanted again: it ends in a block with a name, or in
// one in which a match has ended before.
func (r *run) again() {
	l, s := r.found, r.source
	if s.Again == nil {
		return
	}
	for i := len(l.Hits) - 1; i >= 0; i-- {
		h := &l.Hits[i]
		if h.Start >= l.Tokens {
			continue
		}
		if h.Uses == 0 && (s.Named == nil || !s.Named(h.Key)) {
			return
		}
		break
	}
	places := make([]segments.Loc, 0, len(r.cold.jobs))
	for i := range r.cold.jobs {
		j := &r.cold.jobs[i]
		places = append(places, j.hit.Groups[j.group].Loc)
	}
	s.Again.Add(places)
}
