package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// stopAt is a context that is cancelled when it is asked for the n-th time.
type stopAt struct {
	context.Context
	left *atomic.Int64
}

func newStopAt(n int) stopAt {
	c := stopAt{context.Background(), new(atomic.Int64)}
	c.left.Store(int64(n))
	return c
}

func (c stopAt) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// idle checks that nobody uses the store: nothing is reserved, pinned, leased or locked.
func idle(t testing.TB, what string, s *db.Store) {
	t.Helper()
	e := storetest.Engine(s)
	_, reserved, blocks := e.Budget.Inside().Usage()
	if reserved != 0 || blocks != 0 {
		t.Fatalf("%s: %d bytes and %d blocks stay reserved", what, reserved, blocks)
	}
	pinned, evicting := e.Pins.Counts()
	if pinned != 0 || evicting != 0 {
		t.Fatalf("%s: %d blocks stay pinned, %d are being evicted", what, pinned, evicting)
	}
	if n, _ := e.Segments.Leases(); n != 0 || storetest.Stats(t, s).OpenMatches != 0 {
		t.Fatalf("%s: %d leases, %d matches", what, n, storetest.Stats(t, s).OpenMatches)
	}
	if e.Inside().Workers().Busy() != 0 {
		t.Fatalf("%s: %d are at work", what, e.Inside().Workers().Busy())
	}
	storetest.Eventually(t, what+": nobody holds a lock", func() bool {
		if !e.Ledger.Gate.TryLock() {
			return false
		}
		e.Ledger.Gate.Unlock()
		return true
	})
}

// Whatever is cancelled, whenever, leaves nothing behind that it held.
func TestCancelledAtEachPoint(t *testing.T) {
	d := crashtest.Windowed(40)
	long := func(seed int) kv.Prompt { return kv.Prompt{Tokens: crashtest.Tokens(seed, 400)} }
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, s *db.Store, m *db.Model, i int) error
	}{
		{"put", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			p := long(100 + i)
			_, err := m.Put(ctx, p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{})
			return err
		}},
		{"put behind a part", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			p := long(1)
			p.Tokens = append(p.Tokens[:390:390], crashtest.Tokens(100+i, 130)...)
			_, err := m.Put(ctx, p, storetest.Filled(d, &p, 390, len(p.Tokens)), db.PutOptions{})
			return err
		}},
		{"extend", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			p := long(1)
			p.Tokens = append(p.Tokens[:400:400], crashtest.Tokens(100+i, 130)...)
			x, err := m.Match(context.Background(), p, db.MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			_, err = x.Extend(ctx, p, storetest.Filled(d, &p, x.Tokens(), len(p.Tokens)), db.PutOptions{})
			return err
		}},
		{"restore", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			x, err := m.Match(ctx, long(1), db.MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			_, err = x.Restore(ctx, storetest.Empty(d, 400))
			return err
		}},
		{"view", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			x, err := m.Match(ctx, long(1), db.MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			return x.View(ctx, func(db.StoredPlane) error { return ctx.Err() })
		}},
		{"prefetch", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			_, err := m.Prefetch(ctx, long(1), db.MatchOptions{})
			return err
		}},
		{"ref", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			return m.SetRef(ctx, "ref", long(1), db.RefOptions{})
		}},
		{"checkpoint", func(ctx context.Context, s *db.Store, m *db.Model, i int) error { return s.Checkpoint(ctx) }},
		{"compact", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			_, err := s.Compact(ctx, db.CompactOptions{All: true})
			return err
		}},
		{"shrink", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			_, err := s.Shrink(ctx, storetest.Engine(s).Budget.Measure()-200<<10)
			return err
		}},
		{"delete", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			_, err := m.Delete(ctx, long(100+i))
			return errors.Join(err, s.Sync(ctx))
		}},
		{"suspend", func(ctx context.Context, s *db.Store, m *db.Model, i int) error {
			err := s.Suspend(ctx)
			return errors.Join(err, s.Resume(context.Background()))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := putsEvict(4<<20, 256<<10)
			if c.name == "extend" {
				o.Budget *= 8 // the open match keeps what would have to be evicted
			}
			dir := t.TempDir()
			s := storetest.Open(t, dir, o)
			m := storetest.Model(t, s, d)
			storetest.Put(t, m, long(1))
			storetest.OK(t, m.SetRef(t.Context(), "keep", long(1), db.RefOptions{Pinned: true}))
			fill := 3
			if strings.HasPrefix(c.name, "put") {
				fill = 12 // so that there is something to evict
			}
			for i := range fill {
				storetest.Put(t, m, long(100000+i))
			}
			done := 0
			for i := 0; done < 3; i += 1 + i/16 {
				if c.name == "delete" {
					storetest.Put(t, m, long(100+i))
				}
				err := c.do(newStopAt(i), s, m, i)
				if err == nil {
					done++
				} else if !errors.Is(err, context.Canceled) {
					t.Fatal(i, err)
				}
				if i > 5000 {
					t.Fatal("it is never done")
				}
				idle(t, fmt.Sprint("cancelled at ", i), s)
				if n, _, parts := storetest.Occupied(t, dir); n > o.Budget {
					t.Fatalf("%d bytes are occupied of a budget of %d: %v", n, o.Budget, parts)
				}
			}
			storetest.Expect(t, m, long(1), 400)
			st := storetest.Must(s.Stats())(t)
			storetest.OK(t, s.Close())
			soundFolder(t, dir)
			s = storetest.Open(t, dir, o)
			again := storetest.Must(s.Stats())(t)
			if st.Blocks != again.Blocks || st.StoredRecords != again.StoredRecords || st.LiveBytes != again.LiveBytes {
				t.Errorf("%d blocks, %d records, %d bytes; opened again %d, %d, %d", st.Blocks, st.StoredRecords, st.LiveBytes,
					again.Blocks, again.StoredRecords, again.LiveBytes)
			}
			storetest.Expect(t, storetest.Model(t, s, d), long(1), 400)
		})
	}
}

// stopped is what an operation returns that met the end of c.
func (c stopAt) stopped() error { return context.Canceled }

// A callback may use the store while somebody waits to have it to himself: neither waits for the other.
func TestCallbacksUseTheStore(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	defer x.Close()

	var wait sync.WaitGroup
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() {
		wait.Go(func() {
			close(asked)
			if err := s.Suspend(t.Context()); err != nil {
				t.Error(err)
			}
		})
		<-asked
		time.Sleep(20 * time.Millisecond) // Suspend waits by now, most likely
	})
	err := x.View(t.Context(), func(db.StoredPlane) error {
		ask()
		if _, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); err != nil && !errors.Is(err, db.ErrSuspended) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	wait.Wait()
	if _, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); !errors.Is(err, db.ErrSuspended) {
		t.Errorf("probe of a suspended store: %v", err)
	}
	storetest.OK(t, s.Resume(t.Context()))
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		storetest.OK(t, s.Suspend(t.Context()))
		storetest.OK(t, s.Resume(t.Context()))
		_ = b
	}
}

// A store that is closed in the midst of everything, suspended and rebuilt beside, ends whole, with every operation answered and
// no goroutine left; what was acknowledged is there when it is opened again.
func TestCloseBesideEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	seed := seedOf(t)
	dir := t.TempDir()
	o := storetest.Options()
	o.SegmentBytes, o.HighWater, o.LowWater = 256<<10, 1, 1
	var mu sync.Mutex
	kept := map[int]bool{}
	for round := range 12 {
		s := storetest.Must(storetest.TryOpen(vfs.OS, dir, o))(t)
		var all sync.WaitGroup
		var done atomic.Int64
		for g := range 4 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed+uint64(round), uint64(g)))
				m, err := s.Register(t.Context(), crashtest.Plain())
				for err == nil || errors.Is(err, db.ErrSuspended) {
					if m.Model == nil {
						m, err = s.Register(t.Context(), crashtest.Plain())
						continue
					}
					done.Add(1)
					id := r.IntN(1000)
					p := kv.Prompt{Tokens: crashtest.Tokens(id, 48)}
					switch r.IntN(8) {
					case 0:
						if err = s.Suspend(t.Context()); err == nil {
							err = s.Resume(t.Context())
						}
					case 1:
						if r.IntN(4) == 0 {
							storetest.DoubtIndex(s)
						}
					case 2:
						err = s.Checkpoint(t.Context())
					case 3, 4:
						var x *db.Match
						if x, err = m.Match(t.Context(), p, db.MatchOptions{}); err == nil {
							err = x.View(t.Context(), func(db.StoredPlane) error { _, err := s.Stats(); return err })
							x.Close()
						}
					default:
						if _, err = m.Put(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 48), db.PutOptions{}); err == nil {
							mu.Lock()
							kept[id] = true
							mu.Unlock()
						}
					}
				}
				if !errors.Is(err, db.ErrClosed) {
					t.Error(err)
				}
			})
		}
		for done.Load() < 100 && !t.Failed() {
			runtime.Gosched()
		}
		err := db.ErrLeased
		for errors.Is(err, db.ErrLeased) {
			runtime.Gosched()
			err = s.Close()
		}
		if err != nil {
			t.Error("close:", err)
		}
		all.Wait()
		// Whoever resumed last has the lock.
		if err := s.Close(); err != nil && !errors.Is(err, db.ErrClosed) {
			t.Error(err)
		}
	}
	soundFolder(t, dir)
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for id := range kept {
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(id, 48)}, 48)
	}
	storetest.OK(t, s.Close())
	t.Log(len(kept), "prompts")
	storetest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// A panic that passes through a put and that the caller recovers from, a library's host say, leaves a store that can be used and closed.
func TestPanicInAPut(t *testing.T) {
	var armed atomic.Bool
	disk := storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "write" && strings.HasSuffix(c.Name, ".seg") && armed.CompareAndSwap(true, false) {
			panic("broken")
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	for n := range 4 {
		p := kv.Prompt{Tokens: crashtest.Tokens(n, 64*(1+n))}
		armed.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("nothing panicked")
				}
			}()
			m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{})
		}()
		storetest.Put(t, m, p)
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.Expect(t, m, p, len(p.Tokens))
	}
	storetest.OK(t, s.Close())
}

// An Open whose Progress panics leaves no lock.
func TestPanicInProgress(t *testing.T) {
	dir, o := t.TempDir(), storetest.Options()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.OK(t, putNth(t, m, 1))
	storetest.OK(t, s.Close())
	storetest.Remove(t, dir, "index.db")
	o.Progress = func(db.Progress) { panic("broken") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing panicked")
			}
		}()
		storetest.Open(t, dir, o)
	}()
	o.Progress = nil
	storetest.OK(t, storetest.Open(t, dir, o).Close())
}
