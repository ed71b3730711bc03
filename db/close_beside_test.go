package db

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A store that is closed in the midst of everything, suspended and rebuilt beside, ends whole, with every operation answered and
// no goroutine left; what was acknowledged is there when it is opened again.
func TestCloseBesideEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	seed := seedOf(t)
	dir := t.TempDir()
	o := options()
	o.SegmentBytes, o.HighWater, o.LowWater = 256<<10, 1, 1
	var mu sync.Mutex
	kept := map[int]bool{}
	for round := range 12 {
		s, err := Open(ctx, dir, o)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var done atomic.Int64
		for g := range 4 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed+uint64(round), uint64(g)))
				m, err := s.Register(ctx, plain())
				for err == nil || errors.Is(err, ErrSuspended) {
					if m.Model == nil {
						m, err = s.Register(ctx, plain())
						continue
					}
					done.Add(1)
					id := r.IntN(1000)
					p := kv.Prompt{Tokens: tokens(id, 48)}
					switch r.IntN(8) {
					case 0:
						if err = s.Suspend(ctx); err == nil {
							err = s.Resume(ctx)
						}
					case 1:
						if r.IntN(4) == 0 {
							s.indexDamaged(errors.New("a test says so"))
						}
					case 2:
						err = s.Checkpoint(ctx)
					case 3, 4:
						var x *Match
						if x, err = m.Match(ctx, p, MatchOptions{}); err == nil {
							err = x.View(ctx, func(StoredPlane) error { _, err := s.Stats(); return err })
							x.Close()
						}
					default:
						if _, err = m.Put(ctx, p, filled(plain(), &p, 0, 48), PutOptions{}); err == nil {
							mu.Lock()
							kept[id] = true
							mu.Unlock()
						}
					}
				}
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		for done.Load() < 100 && !t.Failed() {
			runtime.Gosched()
		}
		for err = ErrLeased; errors.Is(err, ErrLeased); {
			runtime.Gosched()
			err = s.Close()
		}
		if err != nil {
			t.Error("close:", err)
		}
		all.Wait()
		// Whoever resumed last has the lock.
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	report, err := Verify(ctx, dir, VerifyOptions{})
	if err != nil || len(report.Damage) > 0 {
		t.Fatal(err, report.Damage)
	}
	s := open(t, dir, o)
	m := model(t, s, plain())
	for id := range kept {
		expect(t, m, kv.Prompt{Tokens: tokens(id, 48)}, 48)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Log(len(kept), "prompts")
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
