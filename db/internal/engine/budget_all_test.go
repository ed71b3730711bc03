package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// TestBudgetHoldsAtAllTimes fills stores of several models without background eviction, with checkpoints, compactions and
// closes between, and asks the system after each step. Temporary files count.
func TestBudgetHoldsAtAllTimes(t *testing.T) {
	for _, c := range []struct {
		name           string
		tokens, models int
		steps          int
		often          bool // checkpoints and compactions
	}{{"one model", 80, 1, 300, true}, {"many models", 80, 16, 300, true}, {"late checkpoints", 1, 1, 1500, false}, {"many models, late checkpoints", 1, 16, 1500, false}} {
		t.Run(c.name, func(t *testing.T) {
			models := c.models
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 4<<20, 256<<10
			if !c.often {
				o.CheckpointBytes = 1 << 30 // the whole index is written at once, when the store is full
			}
			o.HighWater, o.LowWater = 1, 1
			dir, blocks := memdir.Disk(t), int64(4096) // a real one: it takes blocks of its own
			if !c.often {
				if shm, err := os.MkdirTemp("/dev/shm", "dormouse"); err == nil { // where nothing but bytes is counted
					t.Cleanup(func() { os.RemoveAll(shm) })
					dir, blocks = shm, 0
				}
			}
			s := storetest.Open(t, dir, o)
			r := rand.New(rand.NewPCG(1, uint64(models)))
			var most, evicted int64
			defer func() { t.Logf("at most %d bytes of %d", most, o.Budget) }()
			check := func(what string) {
				t.Helper()
				n, files, parts := storetest.Occupied(t, dir)
				// Nothing runs in the background then. A block that a file system takes for a file's extents (ext4, from the fifth
				// on) is seen by the next measurement only; the reserve has room for it.
				if used, _, _ := storetest.Engine(s).Inside().Space(); !c.often && storetest.Engine(s).Inside().Measured().Load() && n > used+int64(files)*blocks {
					t.Fatalf("%s: %d bytes are occupied, the store knows of %d: %v", what, n, used, parts)
				}
				if most = max(most, n); n > o.Budget {
					t.Fatalf("%s: %d bytes are occupied of a budget of %d: %v", what, n, o.Budget, parts)
				}
			}
			// The worst moment of a checkpoint is seen by whoever looks meanwhile.
			stop := make(chan struct{})
			var watch sync.WaitGroup
			watch.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if n, _, parts := storetest.Occupied(t, dir); n > o.Budget {
						t.Errorf("meanwhile: %d bytes are occupied of a budget of %d: %v", n, o.Budget, parts)
						return
					}
				}
			})
			defer func() { close(stop); watch.Wait() }()
			for i := range c.steps {
				d := crashtest.Plain()
				d.Name = fmt.Sprint("model ", r.IntN(models))
				m := storetest.Model(t, s, d)
				p := kv.Prompt{Tokens: crashtest.Tokens(i, 16+r.IntN(c.tokens))}
				storetest.Put(t, m, p)
				check(fmt.Sprint("put ", i))
				if !c.often && r.IntN(12) > 0 {
					continue
				}
				switch r.IntN(30) {
				case 0, 1, 2:
					if err := s.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
					check(fmt.Sprint("checkpoint at ", i))
				case 3:
					if _, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil {
						t.Logf("compact: %v", err)
					}
					check(fmt.Sprint("compaction at ", i))
				case 4:
					evicted += storetest.Engine(s).Count.Evicted.Load()
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = storetest.Open(t, dir, o)
					check(fmt.Sprint("open at ", i))
				}
			}
			evicted += storetest.Engine(s).Count.Evicted.Load()
			if evicted == 0 {
				t.Error("nothing was evicted: this test shows nothing")
			}
		})
	}
}

// Bytes that an open match keeps from being reclaimed must not make the background evict one more share of the store at
// each turn.
func TestOpenMatchDoesNotEmptyTheStore(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.HighWater, o.LowWater = 16<<20, 0.3, 0.25
	s := storetest.Open(t, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	x, err := m.Match(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, db.MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for i := 0; storetest.Stats(t, s).Evicted == 0 && !storetest.Engine(s).Inside().AboveHighWater(); i++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i+1, 256)})
	}
	before := storetest.Engine(s).Counts().Blocks
	for range 30 {
		if err := storetest.Engine(s).Inside().EvictToLowWater(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := storetest.Engine(s).Counts().Blocks; after < before/2 {
		t.Fatalf("of %d blocks %d are left", before, after)
	}
}
