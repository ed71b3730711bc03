package read

import (
	"context"
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
)

const (
	againBytes = 256 << 20 // at most so much of a restore
	againStep  = 1 << 20   // is asked for between two pauses
	againPause = 5 * time.Millisecond
)

// Again has the system read into its page cache what was read around it and is likely to be wanted again, in no hurry: what one restore read, a
// megabyte at a time, at the priority of an idle disk, and not beside a cold restore. Safe for concurrent use.
type Again struct {
	Segments *segments.Set
	Busy     func() bool // a cold restore is under way

	mu    lock.Mutex[lock.Reads] // guards all below
	stop  context.CancelFunc     // ends that
	ended chan struct{}          // closed when it has ended; nil: nobody is at work
}

// Add has places read, unless others are being read.
func (a *Again) Add(places []segments.Loc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return
	}
	bytes := int64(0)
	for i, at := range places {
		if bytes += at.Length; bytes > againBytes {
			places = places[:i]
			break
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	a.stop, a.ended = stop, ended
	go func() {
		vfs.Idly(func() { a.work(ctx, places) })
		stop()
		a.mu.Lock()
		a.stop, a.ended = nil, nil
		a.mu.Unlock()
		close(ended)
	}()
}

// Drop forgets what waits, and returns when nothing is asked for any more.
func (a *Again) Drop() {
	a.mu.Lock()
	stop, ended := a.stop, a.ended
	a.mu.Unlock()
	if ended != nil {
		stop()
		<-ended
	}
}

func (a *Again) work(ctx context.Context, places []segments.Loc) {
	tick := time.NewTicker(againPause)
	defer tick.Stop()
	left := int64(0) // until the next pause
	for _, at := range places {
		for at.Length > 0 {
			for left == 0 {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if !a.Busy() {
					left = againStep
				}
			}
			part := at
			part.Length = min(at.Length, left)
			a.Segments.ReadAhead(part)
			at.Offset += part.Length
			at.Length -= part.Length
			left -= part.Length
		}
	}
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
		places = append(places, r.cold.jobs[i].at())
	}
	s.Again.Add(places)
}
