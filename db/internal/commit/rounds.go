package commit

import (
	"errors"
	"sync/atomic"
	"time"
)

// rounds makes what Power acknowledges durable: segments and log at the same time, once for all who wait. Who comes while a round is under way
// is in the next one.
//
// A crash may leave a frame without its record so, or a record without its frame. Nobody was told of either. The next open reads what no barrier
// covers: it takes out what is not whole, and what that had replaced comes back, since nothing of it is destroyed before a barrier, and that
// syncs the segments before the log.
type rounds struct {
	open   chan *round   // holds the one that is still joined
	turn   chan struct{} // holds one while a round is synced; channels, for the reason that barriers.turn is one
	coming atomic.Int32  // puts under way that are not in a round
	came   chan struct{} // holds one when somebody joined a round, or will not
	size   int           // guarded by turn: of the last round
	took   time.Duration // guarded by turn: by its sync
}

var errNotSynced = errors.New("the sync of those who waited together did not come to its end")

// round is who waits for one sync.
type round struct {
	size int           // guarded by rounds.open
	done chan struct{} // closed behind the sync
	err  error         // of the sync, for all of them
}

func newRounds() *rounds {
	x := &rounds{open: make(chan *round, 1), turn: make(chan struct{}, 1), came: make(chan struct{}, 1)}
	x.open <- newRound()
	return x
}

func newRound() *round { return &round{done: make(chan struct{})} }

// putBegins counts a put that will wait for a round, until end.
func (x *rounds) putBegins() (end func()) {
	x.coming.Add(1)
	return x.putEnds
}

func (x *rounds) putEnds() {
	x.coming.Add(-1)
	x.tell()
}

func (x *rounds) tell() {
	select {
	case x.came <- struct{}{}:
	default:
	}
}

// wait returns when a sync has ended that began after the call.
func (x *rounds) wait(sync func() error) error {
	r := <-x.open
	r.size++
	first := r.size == 1
	x.open <- r
	x.tell()
	if !first {
		<-r.done
		return r.err
	}
	x.turn <- struct{}{}
	defer func() { <-x.turn }()
	x.gather(r)
	<-x.open
	x.open <- newRound()
	defer close(r.done)
	start := time.Now()
	r.err = errNotSynced // of who panics in it: a Logger of the host's, say
	r.err = sync()
	x.size, x.took = r.size, time.Since(start)
	return r.err
}

// gather waits until as many are in the round as were in the last one, if so many are on their way, and no longer than an eighth of a sync: those who
// come together share one sync then, where else the first would have one of its own, and the others wait for two. Where a sync is as quick as a put
// is encoded, to wait would make processors and disk take turns.
func (x *rounds) gather(r *round) {
	var late <-chan time.Time
	for {
		<-x.open
		missing := x.size - r.size
		x.open <- r
		if missing <= 0 || x.coming.Load() == 0 {
			return
		}
		if late == nil {
			late = time.After(x.took / 8)
		}
		select {
		case <-x.came:
		case <-late:
			return
		}
	}
}
