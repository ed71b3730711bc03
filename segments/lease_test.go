package segments

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Bytes that a lease can see never change while it is open, whatever others append, destroy, reclaim, seal, sync and trim.
func TestLeasedBytesNeverChange(t *testing.T) {
	s := newSet(t)
	type stored struct {
		block block
		loc   Loc
	}
	var mu sync.Mutex // guards index, as the database's would
	index := map[uint64]stored{}
	var seed, reads, reclaimed atomic.Int64
	var workers, background sync.WaitGroup
	start := time.Now()
	stopped := func() bool { // after a while, on a busy machine a longer one
		took := time.Since(start)
		return took > time.Minute || took > 1200*time.Millisecond && reads.Load() > 0 && reclaimed.Load() > 0
	}
	for range 3 {
		workers.Go(func() { // readers
			for !stopped() {
				lease := s.Acquire()
				mu.Lock()
				seen := make([]stored, 0, len(index))
				for _, x := range index {
					seen = append(seen, x)
				}
				mu.Unlock()
				for range 3 {
					for _, x := range seen {
						if err := x.block.read(s, x.loc); err != nil {
							t.Errorf("%v under a lease: %v", x.loc, err)
						}
						reads.Add(1)
					}
				}
				lease.Release()
				time.Sleep(time.Millisecond)
			}
		})
	}
	for n := range 2 {
		workers.Go(func() { // writers
			for range 60 {
				key := uint64(seed.Add(1))
				b := makeBlock(n+1, key, 2000, 3000)
				loc := b.append(t, s, n+1)
				mu.Lock()
				index[key] = stored{b, loc}
				var out []Loc
				for k, x := range index {
					if len(index) > 20 {
						delete(index, k)
						out = append(out, x.loc)
					}
				}
				mu.Unlock()
				s.Destroy(out)
				time.Sleep(time.Millisecond)
			}
		})
	}
	background.Go(func() {
		for !stopped() {
			done, _, err := s.Reclaim(context.Background(), nil)
			if err != nil {
				t.Error(err)
			}
			reclaimed.Add(int64(len(done)))
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
			s.Trim()
			s.Segments()
			for _, info := range s.Segments() {
				if info.Active && info.ID%2 == 0 {
					if err := s.SealAll(); err != nil {
						t.Error(err)
					}
				}
			}
			for id := range s.MaxID() {
				err := s.Verify(context.Background(), id+1, func(Loc) bool { return false }, func(*damage.Error) {}, nil)
				if err != nil && !errors.Is(err, ErrMissing) {
					t.Error(err)
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	workers.Wait()
	background.Wait()
	if reads.Load() == 0 || reclaimed.Load() == 0 {
		t.Errorf("%d reads, %d records reclaimed: nothing was tested", reads.Load(), reclaimed.Load())
	}
	reclaim(t, s)
	if n, bytes := s.Pending(); n != 0 || bytes != 0 {
		t.Errorf("%d records, %d bytes still wait without any lease", n, bytes)
	}
	ok(t, s.Close())
}

// A reader without a lease may see anything but wrong bytes of a record that is there, and must not crash.
func TestReadersWithoutALease(t *testing.T) {
	s := newSet(t)
	var blocks []block
	var locs []Loc
	for i := range uint64(60) {
		blocks = append(blocks, makeBlock(1, i, 4000))
		locs = append(locs, blocks[i].append(t, s, 1))
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i, loc := range locs {
				err := blocks[i].read(s, loc)
				if errors.Is(err, errDiffers) { // bytes that were checked may go before they are compared: then the header went first
					if again := s.Read(loc, func(*Record) error { return nil }); errors.Is(again, ErrDestroyed) {
						continue
					}
				}
				if err != nil && !errors.Is(err, errCorrupt) && !errors.Is(err, ErrDestroyed) {
					t.Errorf("%v: %v", loc, err)
				}
			}
		})
	}
	for i := range 6 {
		s.Destroy(locs[i*10 : i*10+10])
		if i == 3 {
			s.Unlink(locs[0].Segment, false)
		}
		reclaim(t, s)
	}
	wg.Wait()
	ok(t, s.Close())
}

func TestCloseWaitsForLeases(t *testing.T) {
	s := newSet(t)
	b := makeBlock(1, 1, 10)
	loc := b.append(t, s, 1)
	before := time.Now()
	l1, l2 := s.Acquire(), s.Acquire()
	if open, oldest := s.Leases(); open != 2 || oldest.Before(before) || oldest.After(time.Now()) {
		t.Error(open, oldest)
	}
	l1.Release()
	if err := s.Close(); !errors.Is(err, ErrLeased) {
		t.Error(err)
	}
	l2.Release()
	ok(t, s.Read(loc, func(*Record) error {
		if err := s.Close(); !errors.Is(err, ErrLeased) {
			t.Error("closed under a reader:", err)
		}
		return nil
	}))
	ok(t, s.Close())
	if err := b.read(s, loc); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A lease whose holder looks only at what it has pinned keeps no record that went unseen, and all others.
func TestPinnedLeaseKeepsNoUnseenRecord(t *testing.T) {
	s := newSet(t)
	var locs []Loc
	for i := range uint64(6) {
		locs = append(locs, makeBlock(1, i, 4000).append(t, s, 1))
	}
	ok(t, s.SealAll())
	pinned, seeking := s.Acquire(), s.AcquireShort()
	pinned.Pinned()
	s.Destroy(locs[:1])
	s.DestroyUnseen(locs[1:3])
	expect := func(what string, unseen, seen int64, gone int) {
		t.Helper()
		done := reclaim(t, s)
		u, v := s.Kept()
		if len(done) != gone || u != unseen || v != seen {
			t.Errorf("%s: %d records are gone, %d and %d bytes are kept", what, len(done), u, v)
		}
	}
	expect("while somebody may look at anything", 0, locs[0].Length, 0)
	seeking.Release()
	expect("while all are pinned", 0, locs[0].Length, 2)
	verify := s.Acquire()
	s.DestroyUnseen(locs[3:4])
	expect("while somebody looks at everything", locs[3].Length, locs[0].Length, 0)
	verify.Release()
	expect("after that", 0, locs[0].Length, 1)
	s.DestroyUnseen(locs[4:])
	s.Unlink(locs[0].Segment, true)
	reclaim(t, s)
	expect("emptied but for one", 0, s.Held(), 0)
	if !s.Has(locs[0].Segment) {
		t.Error("the segment of a record that a lease keeps is gone")
	}
	pinned.Release()
	expect("in the end", 0, 0, 1)
	if s.Has(locs[0].Segment) || s.Held() != 0 {
		t.Errorf("the segment is still there, %d bytes are held", s.Held())
	}
	again := makeBlock(1, 9, 4000).append(t, s, 1)
	ok(t, s.SealAll())
	pinned = s.Acquire()
	pinned.Pinned()
	s.DestroyUnseen([]Loc{again})
	s.Unlink(again.Segment, true)
	expect("emptied", 0, 0, 1)
	if s.Has(again.Segment) {
		t.Error("a segment that was emptied waits for a match")
	}
	pinned.Release()
	ok(t, s.Close())
}

// Where a clock stands still, the leases that were taken first still count first.
func TestPinnedLeasesOfOneMoment(t *testing.T) {
	s := newSet(t)
	a := s.Acquire()
	epoch := s.files.queue.leases.advance()
	b := s.Acquire()
	b.taken = a.taken
	b.Pinned()
	a.Pinned()
	if s.files.queue.leases.blind(epoch, false) || !s.files.queue.leases.blind(epoch, true) {
		t.Error("what the first lease sees counts as seen by nobody, or what went unseen as seen")
	}
	a.Release()
	if !s.files.queue.leases.blind(epoch, false) {
		t.Error("the second lease keeps what was destroyed before it")
	}
	b.Release()
	ok(t, s.Close())
}
