package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
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
					storetest.OK(t, s.Checkpoint(t.Context()))
					check(fmt.Sprint("checkpoint at ", i))
				case 3:
					if _, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil {
						t.Logf("compact: %v", err)
					}
					check(fmt.Sprint("compaction at ", i))
				case 4:
					evicted += storetest.Engine(s).Count.Evicted.Load()
					storetest.OK(t, s.Close())
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

// A file system may take one more block for each segment when it writes out what was reserved, whenever that is. The store counts these
// blocks before it has seen them: none of them brings it over its budget.
func TestExtentsAreCounted(t *testing.T) {
	disk := crashtest.NewExtents(vfs.OS)
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 6<<20, 64<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	r := rand.New(rand.NewPCG(1, 2))
	most, evicted := int64(0), int64(0)
	for i := range 600 {
		d := crashtest.Plain()
		d.Name = fmt.Sprint("model ", r.IntN(3))
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(i, 16+r.IntN(100))}
		storetest.Put(t, m, p)
		switch r.IntN(60) {
		case 0, 1:
			storetest.OK(t, s.Checkpoint(t.Context()))
		case 2:
			if _, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil && !errors.Is(err, db.ErrNoSpace) {
				t.Fatal(err)
			}
		case 3:
			storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
		case 4, 5:
			evicted += storetest.Engine(s).Count.Evicted.Load()
			if r.IntN(2) == 0 {
				storetest.Crash(s)
			} else {
				storetest.OK(t, s.Close())
			}
			s = storetest.OpenOn(t, disk, dir, o)
		case 6:
			storetest.OK(t, s.Suspend(t.Context()))
			storetest.OK(t, s.Resume(t.Context()))
		}
		e := storetest.Engine(s)
		if !e.Inside().Measured().Load() {
			continue
		}
		e.Inside().CkptMu().Lock() // nothing else changes in between, as in the first checkpoint behind a kill
		used, _, _ := e.Inside().Space()
		if r.IntN(3) == 0 { // else they are still dirty at the next step
			disk.Writeback()
		}
		now := e.Measure()
		e.Inside().CkptMu().Unlock()
		if now > used {
			t.Fatalf("step %d: the store occupies %d bytes and knew of %d", i, now, used)
		} else if most = max(most, now); now > o.Budget {
			t.Fatalf("step %d: %d bytes are occupied of a budget of %d", i, now, o.Budget)
		}
	}
	if evicted += storetest.Engine(s).Count.Evicted.Load(); evicted == 0 {
		t.Error("nothing was evicted: this test shows nothing")
	}
	t.Logf("at most %d bytes of %d", most, o.Budget)
}

// Bytes that an open match keeps from being reclaimed must not make the background evict one more share of the store at
// each turn.
func TestOpenMatchDoesNotEmptyTheStore(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.HighWater, o.LowWater = 16<<20, 0.3, 0.25
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	x := storetest.Match(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	defer x.Close()
	for i := 0; storetest.Stats(t, s).Evicted == 0 && !storetest.Engine(s).Inside().AboveHighWater(); i++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i+1, 256)})
	}
	before := storetest.Engine(s).Counts().Blocks
	for range 30 {
		storetest.OK(t, storetest.Engine(s).Inside().EvictToLowWater(t.Context()))
	}
	if after := storetest.Engine(s).Counts().Blocks; after < before/2 {
		t.Fatalf("of %d blocks %d are left", before, after)
	}
}

// Puts that run at the same time do not take the same room.
func TestConcurrentPutsHoldTheBudget(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.MaxBlocks = 4<<20, 256<<10, 150
	o.HighWater, o.LowWater = 1, 1
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 60 {
				p := kv.Prompt{Tokens: crashtest.Tokens(g*1000+i, 100)}
				if _, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 100), db.PutOptions{}); err != nil {
					if n := new(db.NotStoredError); errors.As(err, &n) || errors.Is(err, db.ErrNoSpace) {
						continue // its own prefix was evicted, or all is held by the others
					}
					t.Error(err)
				}
				if n := storetest.Engine(s).Counts().Blocks; n > o.MaxBlocks {
					t.Errorf("%d blocks, at most %d", n, o.MaxBlocks)
				}
				if used := storetest.Engine(s).Measure(); used > o.Budget {
					t.Errorf("%d bytes are used of a budget of %d: segments %d, index %d, log %d", used, o.Budget, storetest.Engine(s).Segments.Allocated(), storetest.Engine(s).Index.Bytes(), storetest.Engine(s).Inside().Wal().Bytes())
				}
			}
		})
	}
	wait.Wait()
	if _, reserved, blocks := storetest.Engine(s).Inside().Space(); reserved != 0 || blocks != 0 {
		t.Errorf("%d bytes and %d blocks are still reserved", reserved, blocks)
	}
}

// Where holes cannot be punched, space comes from rewriting what is half dead. A store that is used over and over, its
// warm blocks among cold ones, must not lose the warm ones for that.
func TestBudgetWithoutHoles(t *testing.T) {
	o := storetest.Options()
	disk := crashtest.NoHoles{FS: vfs.OS}
	o.Budget, o.SegmentBytes = 8<<20, 512<<10
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	warm := make([]kv.Prompt, 24)
	for i := range warm {
		warm[i] = kv.Prompt{Tokens: crashtest.Tokens(10_000+i, 64)}
	}
	for i := range 1200 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 64)})
		if i < len(warm)*3 && i%3 == 0 {
			storetest.Put(t, m, warm[i/3])
		}
		x := storetest.Match(t, m, warm[i%len(warm)])
		if want := 64; i >= len(warm)*3 && x.Tokens() != want {
			t.Fatalf("put %d: %d tokens of a warm prompt are left, want %d", i, x.Tokens(), want)
		}
		x.Close()
		if used := storetest.Stats(t, s).DiskBytes; used > o.Budget {
			t.Fatalf("put %d: %d bytes are used of a budget of %d", i, used, o.Budget)
		}
	}
	if storetest.Stats(t, s).WriteAmplification <= 1 {
		t.Error("nothing was rewritten: this test shows nothing")
	}
}
