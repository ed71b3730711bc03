package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Bytes that an open match keeps from being reclaimed must not make the background evict one more share of the store at
// each turn.
func TestOpenMatchDoesNotEmptyTheStore(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.HighWater, o.LowWater = 16<<20, 0.3, 0.25
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	x := storetest.Match(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	defer x.Close()
	for i := 0; storetest.Stats(t, s).Evicted == 0 && !storetest.Engine(s).Space.AboveHighWater(); i++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i+1, 256)})
	}
	before := storetest.Engine(s).Ledger.Counts().Blocks
	for range 30 {
		storetest.OK(t, storetest.Engine(s).Space.EvictToLowWater(t.Context()))
	}
	if after := storetest.Engine(s).Ledger.Counts().Blocks; after < before/2 {
		t.Fatalf("of %d blocks %d are left", before, after)
	}
}

// One block may be stored: it stays.
func TestMaxBlocksOfOne(t *testing.T) {
	o := storetest.Options()
	o.MaxBlocks = 1
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	for i := range 3 {
		p := kv.Prompt{Tokens: crashtest.Tokens(i, 16)}
		storetest.Put(t, m, p)
		storetest.OK(t, storetest.Engine(s).Space.EvictToLowWater(t.Context()))
		storetest.Expect(t, m, p, 16)
	}
}

// What is stored never falls below the low-water mark by more than a segment or a put because of eviction: whatever budget the store is
// opened with again, and though puts make room for themselves, the background evicts, and somebody shrinks the store, all at the same
// time, while open matches keep what was evicted before from coming back.
func TestEvictionKeepsTheLowWaterMark(t *testing.T) {
	runs := 16
	if testing.Short() {
		runs = 4
	}
	for i := range seeds(t, runs) {
		t.Run(fmt.Sprint(i), func(t *testing.T) { newTide(t, i).run() })
	}
}

// seeds counts from one that is printed.
func seeds(t *testing.T, n int) func(yield func(uint64) bool) {
	first := rand.Uint64N(1e9)
	t.Logf("seeds from %d", first)
	return func(yield func(uint64) bool) {
		for i := range uint64(n) {
			if !yield(first + i) {
				return
			}
		}
	}
}

// tide is one run of the test.
type tide struct {
	t     *testing.T
	r     *rand.Rand
	dir   string
	o     db.Options
	s     *db.Store
	m     *db.Model
	next  int
	open  []*db.Match
	floor int64 // the low-water mark
	least int64 // the least room for records that the budget had since the store was opened
	most  int64 // the most live bytes that there were since the store was opened
}

// tidePut are the tokens of the longest put, and tidePutBytes what it takes.
const (
	tidePut      = 512
	tidePutBytes = 9 * 40 << 10
)

func newTide(t *testing.T, seed uint64) *tide {
	r := rand.New(rand.NewPCG(seed, 1))
	d := &tide{t: t, r: r, dir: t.TempDir(), o: storetest.Options()}
	d.o.SegmentBytes = []int64{256 << 10, 1 << 20, 2 << 20}[r.IntN(3)]
	d.o.Budget = 48 << 20
	water := [][2]float64{{0.7, 0.6}, {0.6, 0.6}, {0.5, 0.3}, {1, 1}}[r.IntN(4)]
	d.o.HighWater, d.o.LowWater = water[0], water[1]
	return d
}

func (d *tide) run() {
	d.openStore()
	for d.live() < int64(0.55*float64(d.o.Budget)) && d.evicted() == 0 {
		d.put(tidePut)
	}
	for range 6 {
		d.closeMatches()
		storetest.OK(d.t, d.s.Close())
		d.o.Budget = 12<<20 + d.r.Int64N(36<<20)
		d.openStore()
		shrink := int64(0)
		if d.r.IntN(3) == 0 {
			shrink = int64((0.3 + min(d.o.LowWater, 0.6)) * float64(d.o.Budget)) // the mark, and what is no record
		}
		stop := make(chan struct{})
		var watch, work sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond):
					d.look()
				}
			}
		})
		for g := range 3 {
			r := rand.New(rand.NewPCG(d.r.Uint64(), 2))
			first := d.next
			work.Go(func() {
				for i := range 1 + r.IntN(12) {
					d.putOne(first+1000*(g+1)+i, 1+r.IntN(tidePut))
				}
			})
		}
		d.next += 4000
		for range d.r.IntN(4) {
			d.match()
		}
		if shrink > 0 {
			if _, err := d.s.Shrink(context.Background(), shrink); err != nil {
				d.t.Error(err)
			}
		}
		for range 20 {
			d.put(tidePut)
		}
		work.Wait()
		d.closeMatches()
		for range 3 {
			d.put(64)
		}
		storetest.OK(d.t, d.s.Checkpoint(context.Background()))
		close(stop)
		watch.Wait()
		d.look()
	}
	d.closeMatches()
}

func (d *tide) openStore() {
	d.s = storetest.Open(d.t, d.dir, d.o)
	d.m = storetest.Model(d.t, d.s, bulky())
	d.floor = int64(d.o.LowWater * float64(d.o.Budget))
	d.most, d.least = d.live(), d.room()
}

// room is what the budget has for records, beside log and index, what is kept for a checkpoint, and the puts under way.
func (d *tide) room() int64 {
	e := storetest.Engine(d.s)
	used, _, _ := e.Budget.Inside().Usage()
	return d.o.Budget - e.Budget.ReserveBytes() - (used - e.Segments.Allocated()) - 4*tidePutBytes
}

func (d *tide) live() int64 {
	st := storetest.Must(d.s.Stats())(d.t)
	return st.LiveBytes
}

func (d *tide) evicted() int64 { return storetest.Stats(d.t, d.s).Evicted }

// look holds what is alive against what must be: the low-water mark, or where the budget had less room at some time, that.
func (d *tide) look() {
	live := d.live()
	d.most = max(d.most, live)
	d.least = min(d.least, d.room())
	mark := min(d.floor, d.most, d.least)
	if slack := max(d.o.SegmentBytes, tidePutBytes); live < mark-slack {
		d.t.Errorf("%.1f MB are alive, of %.1f before: less than %.1f by more than %.1f; budget %.1f, water %g to %g; %d evicted",
			float64(live)/1e6, float64(d.most)/1e6, float64(mark)/1e6, float64(slack)/1e6, float64(d.o.Budget)/1e6, d.o.LowWater, d.o.HighWater, d.evicted())
		d.floor = 0 // said once
	}
}

func (d *tide) put(most int) {
	d.putOne(d.next, 16+d.r.IntN(most))
	d.next++
}

func (d *tide) putOne(id, n int) {
	p := kv.Prompt{Tokens: crashtest.Tokens(id+1, n)}
	missing := new(db.NotStoredError)
	if _, err := d.m.Put(context.Background(), p, blank(bulky(), n), db.PutOptions{}); err != nil && !errors.Is(err, db.ErrNoSpace) && !errors.As(err, &missing) {
		d.t.Error(err)
	}
}

// match opens a match on something that is stored.
func (d *tide) match() {
	for range 20 {
		p := kv.Prompt{Tokens: crashtest.Tokens(d.r.IntN(d.next+1)+1, 64)}
		x := storetest.Must(d.m.Match(context.Background(), p, db.MatchOptions{}))(d.t)
		if d.open = append(d.open, x); x.Tokens() > 0 {
			return
		}
	}
}

func (d *tide) closeMatches() {
	for _, x := range d.open {
		x.Close()
	}
	d.open = nil
}

// However much is pinned, the background leaves the newest conversations of those that it may evict. What is pinned no longer makes room again.
func TestPinsAboveTheWaterMarks(t *testing.T) {
	for _, share := range []float64{0.5, 0.63, 0.72} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 64<<20, 2<<20
			s, m := storetest.Fresh(t, o, bulky())
			e := storetest.Engine(s)
			common := crashtest.Tokens(9, 320)
			put := func(i int) kv.Prompt {
				p := kv.Prompt{Tokens: crashtest.Concat(common, crashtest.Tokens(i, 640))}
				storetest.Must(putBlank(m, p))(t)
				return p
			}
			n := 0
			for ; float64(e.Ledger.Counts().Bytes) < share*float64(o.Budget); n++ {
				storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint(n), put(n), db.RefOptions{Pinned: true}))
			}
			var recent []kv.Prompt
			conversations := func(first int) {
				for i := range 40 {
					recent = append(recent, put(first+i))
					storetest.OK(t, e.Space.EvictToLowWater(t.Context()))
					if i%4 > 0 {
						continue
					}
					for _, p := range recent[max(0, len(recent)-8):] {
						if got, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); err != nil || got != len(p.Tokens) {
							t.Fatalf("after %d conversations only %d tokens are there of one of the 8 newest (%v)", i, got, err)
						}
					}
				}
			}
			conversations(1000)
			if e.Ledger.Counts().Bytes > o.Budget*95/100 {
				t.Errorf("%d bytes of %d", e.Ledger.Counts().Bytes, o.Budget)
			}
			for i := range n {
				storetest.OK(t, s.DeleteRef(t.Context(), fmt.Sprint(i)))
			}
			conversations(2000)
			storetest.Eventually(t, "what pins keep is counted again, and what they left is evicted", func() bool {
				storetest.OK(t, e.Space.EvictToLowWater(t.Context()))
				return e.Ledger.Counts().Bytes <= o.Budget*7/10
			})
		})
	}
}
