package together

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
)

const (
	historiesAtOnce = 3
	clientsEach     = 4
	callsEach       = 12
)

// Puts, extensions, matches, restores, deletions and refs, from several goroutines, are linearizable, whatever checkpoints,
// compactions, suspensions and other models' work run beside.
func TestLinearizable(t *testing.T) {
	d, first := lasts(t, 4*time.Second), seed(t)
	s := open(t, t.TempDir(), options())
	var resumes atomic.Int64
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { disturb(t, s, rand.New(rand.NewPCG(first, 1)), &resumes, stop) })

	var histories, calls, dropped, undecided int
	for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); {
		hs := make([]*history, historiesAtOnce)
		for i := range hs {
			hs[i] = newHistory(t, s, first+uint64(histories), &resumes)
			histories++
		}
		var wait sync.WaitGroup
		for _, h := range hs {
			for c := range clientsEach {
				wait.Go(func() { h.client(c) })
			}
		}
		wait.Wait()
		for _, h := range hs {
			h.finish()
			undecided += h.check()
			calls, dropped = calls+len(h.ops), dropped+h.dropped
		}
	}
	close(stop)
	beside.Wait()
	verified(t, s)
	t.Logf("%d histories of %d calls, %d more met a suspended store, %d undecided", histories, calls, dropped, undecided)
	if undecided*20 > histories {
		t.Error("too many histories could not be decided: make them smaller")
	}
}

// disturb does what must not show.
func disturb(t *testing.T, s *db.Store, r *rand.Rand, resumes *atomic.Int64, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(4000)) * time.Microsecond): // so that the others get to do something
		}
		var err error
		switch n := r.IntN(20); {
		case n < 7:
			err = s.Checkpoint(ctx)
		case n < 11:
			_, err = s.Compact(ctx, db.CompactOptions{All: true})
		case n < 14:
			_, err = s.Pressure(ctx, db.Moderate)
		case n < 17:
			if err = s.Sync(ctx); errors.As(err, new(*db.PendingError)) {
				err = nil
			}
		default:
			resumes.Add(1) // odd: one is under way
			err = errors.Join(s.Suspend(ctx), s.Resume(ctx))
			resumes.Add(1)
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}
