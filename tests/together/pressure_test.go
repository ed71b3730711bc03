package together

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

// pressed is a store with a pinned prompt, a leased one and one that nobody needs.
type pressed struct {
	s                    *db.Store
	m                    *db.Model
	pinned, leased, free kv.Prompt
	lease                *db.Match
}

func openPressed(t *testing.T) *pressed {
	x := &pressed{s: open(t, t.TempDir(), options())}
	x.m = model(t, x.s, truth.Plain("pressed", 32))
	x.pinned, x.leased, x.free = truth.Prompt(truth.Tokens(1, 200)), truth.Prompt(truth.Tokens(2, 200)), truth.Prompt(truth.Tokens(3, 400))
	for _, p := range []kv.Prompt{x.pinned, x.leased, x.free} {
		put(t, x.m, p)
	}
	for n := range uint64(20) { // so that there is something to give back
		put(t, x.m, truth.Prompt(truth.Tokens(100+n, 400)))
	}
	must(t, x.m.SetRef(ctx, "facts", x.pinned, db.RefOptions{Pinned: true}))
	x.lease = match(t, x.m, x.leased)
	t.Cleanup(func() { x.lease.Close() })
	return x
}

// has reports how much of a prompt can be restored, every row compared.
func (x *pressed) has(t *testing.T, p kv.Prompt) int {
	t.Helper()
	y := match(t, x.m, p)
	defer y.Close()
	n, _ := restored(t, x.m, y)
	return n
}

// segmentMaps counts the maps of a store's segments, on systems that show them; on others it is -1.
func segmentMaps(s *db.Store) int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return -1
	}
	return strings.Count(string(maps), filepath.Join(s.Dir(), "segments"))
}

// heap is how many bytes of Go's heap the system counts as the process's own. Nobody needs garbage afterwards.
func heap(garbage []byte) uint64 {
	clear(garbage)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys - m.HeapReleased
}

// Each level gives back memory: maps, buffers, and what the functions hold. None takes anything from the disk, so a restore gives
// afterwards what it gave before, of what is pinned, of what a match holds and of what nobody holds.
func TestPressureLevels(t *testing.T) {
	for _, c := range []struct {
		level  db.Pressure
		called int
	}{{db.Moderate, 0}, {db.Low, 1}, {db.Critical, 1}} {
		t.Run(c.level.String(), func(t *testing.T) {
			x := openPressed(t)
			var seen []db.Pressure
			defer x.s.OnPressure(func(_ context.Context, level db.Pressure) error {
				seen = append(seen, level)
				return nil
			})()
			x.has(t, x.free) // so that there are maps
			if segmentMaps(x.s) == 0 {
				t.Error("there are no maps before: this test shows little")
			}
			before, err := x.s.Stats()
			must(t, err)
			memory := heap(make([]byte, 32<<20)) // as a put of a long prompt leaves them
			got, err := x.s.Pressure(ctx, c.level)
			must(t, err)
			if now := heap(nil); now >= memory-16<<20 {
				t.Errorf("the heap has %d bytes, and %d before", now, memory)
			}
			after, err := x.s.Stats()
			must(t, err)
			if want := slices.Repeat([]db.Pressure{c.level}, c.called); got.Called != c.called || !slices.Equal(seen, want) {
				t.Errorf("%d functions were called, with %v; expected %v", got.Called, seen, want)
			}
			if maps := segmentMaps(x.s); got.Held != 0 || maps > 0 {
				t.Errorf("%d segments are held and %d maps are left, and nobody reads", got.Held, maps)
			}
			if after.Blocks != before.Blocks || after.StoredRecords != before.StoredRecords || after.Evicted != 0 {
				t.Errorf("%d blocks, %d records, %d evicted; before %d and %d", after.Blocks, after.StoredRecords, after.Evicted, before.Blocks, before.StoredRecords)
			}
			for name, want := range map[*kv.Prompt]int{&x.pinned: 200, &x.leased: 200, &x.free: 400} {
				if n := x.has(t, *name); n != want {
					t.Errorf("%d tokens are left of %d, expected %d", n, len(name.Tokens), want)
				}
			}
			if n, _ := restored(t, x.m, x.lease); n != 200 {
				t.Errorf("the open match gives %d tokens", n)
			}
			must(t, x.lease.Close())
			verified(t, x.s)
		})
	}
}

// What a function parks in the store is there afterwards, at each level, with no ref on it. A function that fails keeps neither the
// others from being called nor anything from being dropped, and one that was taken out is not called.
func TestPressureFunctions(t *testing.T) {
	for _, level := range []db.Pressure{db.Low, db.Critical} {
		t.Run(level.String(), func(t *testing.T) { testPressureFunctions(t, level) })
	}
}

func testPressureFunctions(t *testing.T, level db.Pressure) {
	x := openPressed(t)
	var order []string
	broken := errors.New("cannot park")
	x.s.OnPressure(func(context.Context, db.Pressure) error {
		order = append(order, "fails")
		return broken
	})
	parked := truth.Prompt(truth.Tokens(7, 150))
	x.s.OnPressure(func(context.Context, db.Pressure) error {
		order = append(order, "parks")
		put(t, x.m, parked)
		return nil
	})
	stop := x.s.OnPressure(func(context.Context, db.Pressure) error {
		order = append(order, "was taken out")
		return nil
	})
	stop()
	stop() // once more is harmless
	got, err := x.s.Pressure(ctx, level)
	if !errors.Is(err, broken) {
		t.Errorf("error %v, expected the function's", err)
	}
	if got.Called != 2 || !slices.Equal(order, []string{"fails", "parks"}) {
		t.Errorf("%d were called: %v", got.Called, order)
	}
	if maps := segmentMaps(x.s); got.Held != 0 || maps > 0 {
		t.Errorf("%+v, %d maps: the error of a function kept something from being dropped", got, maps)
	}
	for _, want := range []struct {
		p kv.Prompt
		n int
	}{{parked, 150}, {x.pinned, 200}, {x.free, 400}} {
		if n := x.has(t, want.p); n != want.n {
			t.Errorf("%d tokens are left, expected %d", n, want.n)
		}
	}
}

// A pressure that cannot do all does what it can, and says what it could not.
func TestPressureRefused(t *testing.T) {
	x := openPressed(t)
	var calls int
	x.s.OnPressure(func(context.Context, db.Pressure) error { calls++; return nil })
	for _, level := range []db.Pressure{0, 4, 255} {
		if got, err := x.s.Pressure(ctx, level); err == nil || got != (db.Relieved{}) {
			t.Errorf("level %d: %+v, %v; expected an error", level, got, err)
		}
	}
	x.has(t, x.free)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if got, err := x.s.Pressure(cancelled, db.Critical); !errors.Is(err, context.Canceled) || got.Called != 0 || got.Held != 0 {
		t.Errorf("cancelled: %+v, %v; expected the maps to be dropped, and nobody to be called", got, err)
	}
	must(t, x.s.Suspend(ctx))
	if _, err := x.s.Pressure(ctx, db.Low); !errors.Is(err, db.ErrSuspended) {
		t.Errorf("suspended: %v", err)
	}
	must(t, x.s.Resume(ctx))
	must(t, x.lease.Close())
	must(t, x.s.Close())
	if _, err := x.s.Pressure(ctx, db.Low); !errors.Is(err, db.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if calls != 0 {
		t.Errorf("a function was called %d times by pressures that were refused", calls)
	}

	o := options()
	o.ReadOnly = true
	s := open(t, x.s.Dir(), o)
	m, err := s.Model(x.m.Fingerprint())
	must(t, err)
	s.OnPressure(func(context.Context, db.Pressure) error { calls++; return nil })
	if got, err := s.Pressure(ctx, db.Critical); err != nil || got.Called != 1 || calls != 1 {
		t.Errorf("read-only: %+v, %v, %d calls", got, err, calls)
	}
	y := match(t, m, x.free)
	defer y.Close()
	if n, _ := restored(t, m, y); n != 400 {
		t.Errorf("a reader has %d tokens after a pressure, expected 400", n)
	}
}

// Pressures of all levels beside puts, restores and functions that come and go: whatever a restore gives is right, what is pinned is there
// whole at any time, and the store is sound in the end.
func TestPressureBesideAll(t *testing.T) {
	end, first := time.Now().Add(lasts(t, 4*time.Second)), seed(t)
	s := open(t, t.TempDir(), options())
	m := model(t, s, truth.Plain("pressed", 32))
	pinned := truth.Prompt(truth.Tokens(1, 300))
	put(t, m, pinned)
	must(t, m.SetRef(ctx, "facts", pinned, db.RefOptions{Pinned: true}))
	var parks atomic.Int64
	park := func(ctx context.Context, _ db.Pressure) error {
		n := uint64(parks.Add(1))
		p := truth.Prompt(truth.Tokens(1000+n%20, 100))
		d := m.Descriptor()
		_, err := m.Put(ctx, p, truth.Filled(&d, &p, 0, 100), db.PutOptions{})
		return err
	}
	defer s.OnPressure(park)()
	var workers sync.WaitGroup
	work := func(name string, n uint64, step func(r *rand.Rand) error) {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(first, n))
			for time.Now().Before(end) && !t.Failed() {
				if err := step(r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	d := m.Descriptor()
	restore := func(p kv.Prompt, least int) error {
		x, err := m.Match(ctx, p, db.MatchOptions{})
		if err != nil {
			return err
		}
		defer x.Close()
		rows := truth.Empty(&d, len(p.Tokens))
		got, err := x.Restore(ctx, rows)
		if err == nil && got.Tokens < least {
			err = fmt.Errorf("%d tokens (%v), expected %d", got.Tokens, got.Reason, least)
		}
		return errors.Join(err, truth.Check(&d, &p, rows, got.Tokens))
	}
	for n := range uint64(2) {
		work("put", 10+n, func(r *rand.Rand) error {
			p := truth.Prompt(truth.Tokens(2+r.Uint64N(30), 40+r.IntN(300)))
			_, err := m.Put(ctx, p, truth.Filled(&d, &p, 0, len(p.Tokens)), db.PutOptions{})
			return err
		})
		work("restore", 20+n, func(r *rand.Rand) error {
			return errors.Join(restore(truth.Prompt(truth.Tokens(2+r.Uint64N(30), 340)), 0), restore(pinned, 300))
		})
		work("pressure", 30+n, func(r *rand.Rand) error {
			_, err := s.Pressure(ctx, db.Moderate+db.Pressure(r.IntN(3)))
			return err
		})
	}
	work("functions", 40, func(r *rand.Rand) error {
		stop := s.OnPressure(park)
		time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
		stop()
		return nil
	})
	workers.Wait()
	if parks.Load() == 0 {
		t.Error("no function was ever called")
	}
	verified(t, s)
	noneLeft(t)
}
