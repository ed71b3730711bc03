package engine_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

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
