package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
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
			// The worst moment of a checkpoint is before some change of the disk.
			disk := storetest.Failing(func(c storetest.Call) error {
				if !c.Changes() || t.Failed() {
					return nil
				}
				if n, _, parts := storetest.Occupied(t, dir); n > o.Budget {
					t.Errorf("before %s %s: %d bytes are occupied of a budget of %d: %v", c.Kind, c.Name, n, o.Budget, parts)
				}
				return nil
			})
			s := storetest.OpenOn(t, disk, dir, o)
			r := rand.New(rand.NewPCG(1, uint64(models)))
			var most, evicted int64
			defer func() { t.Logf("at most %d bytes of %d", most, o.Budget) }()
			check := func(what string) {
				t.Helper()
				n, files, parts := storetest.Occupied(t, dir)
				// Nothing runs in the background then. A block that a file system takes for a file's extents (ext4, from the fifth
				// on) is seen by the next measurement only; the reserve has room for it.
				if used, _, _ := storetest.Engine(s).Budget.Inside().Usage(); !c.often && storetest.Engine(s).Budget.Inside().Measured().Load() && n > used+int64(files)*blocks {
					t.Fatalf("%s: %d bytes are occupied, the store knows of %d: %v", what, n, used, parts)
				}
				if most = max(most, n); n > o.Budget {
					t.Fatalf("%s: %d bytes are occupied of a budget of %d: %v", what, n, o.Budget, parts)
				}
			}
			// What bbolt writes is no call of the disk: whoever looks meanwhile sees it.
			stop := make(chan struct{})
			var watch sync.WaitGroup
			watch.Go(func() {
				for !c.often {
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
					s = storetest.OpenOn(t, disk, dir, o)
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
	o := putsEvict(6<<20, 64<<10)
	dir := t.TempDir()
	if memory, err := os.MkdirTemp("/dev/shm", "dormouse-test-"); err == nil { // the file system below may take such blocks itself, beside those of disk
		dir = memory
		t.Cleanup(func() { os.RemoveAll(memory) })
	}
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
		if !e.Budget.Inside().Measured().Load() {
			continue
		}
		e.Checkpoints.Inside().Mu().Lock() // nothing else changes in between, as in the first checkpoint behind a kill
		used, _, _ := e.Budget.Inside().Usage()
		if r.IntN(3) == 0 { // else they are still dirty at the next step
			disk.Writeback()
		}
		now := e.Budget.Measure()
		e.Checkpoints.Inside().Mu().Unlock()
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

// Puts that run at the same time do not take the same room.
func TestConcurrentPutsHoldTheBudget(t *testing.T) {
	o := putsEvict(4<<20, 256<<10)
	o.MaxBlocks = 150
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
				if n := storetest.Engine(s).Ledger.Counts().Blocks; n > o.MaxBlocks {
					t.Errorf("%d blocks, at most %d", n, o.MaxBlocks)
				}
				if used := storetest.Engine(s).Budget.Measure(); used > o.Budget {
					t.Errorf("%d bytes are used of a budget of %d: segments %d, index %d, log %d", used, o.Budget, storetest.Engine(s).Segments.Allocated(), storetest.Engine(s).Index.Bytes(), storetest.Engine(s).Ledger.WAL.Bytes())
				}
			}
		})
	}
	wait.Wait()
	if _, reserved, blocks := storetest.Engine(s).Budget.Inside().Usage(); reserved != 0 || blocks != 0 {
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

// A budget that is lowered again and again leaves a store that takes puts: the index shrinks with what goes.
func TestBudgetLoweredToTheIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: with -short, because it stores 300 MB")
	}
	dir, o := t.TempDir(), storetest.Options()
	o.CheckpointInterval, o.CheckpointBytes = 0, 0
	d := crashtest.Plain()
	d.BlockTokens, d.Tensors = 64, d.Tensors[:2]
	n := 0
	for _, c := range []struct{ mib, prompts, tokens int64 }{{1024, 60, 25600}, {64, 200, 192}, {16, 200, 192}, {8, 200, 192}, {4, 200, 192}} {
		o.Budget, o.SegmentBytes = c.mib<<20, 0
		s := storetest.Open(t, dir, o)
		m := storetest.Model(t, s, d)
		for range c.prompts {
			n++
			p := kv.Prompt{Tokens: crashtest.Tokens(n, int(c.tokens))}
			if _, err := m.Put(t.Context(), p, storetest.Filled(d, &p, 0, int(c.tokens)), db.PutOptions{}); err != nil {
				t.Fatalf("put %d with %d MiB: %v", n, c.mib, err)
			}
		}
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(n, int(c.tokens))}, int(c.tokens))
		t.Logf("%d MiB: %d blocks", c.mib, storetest.Engine(s).Ledger.Counts().Blocks)
		storetest.OK(t, s.Close())
	}
}

// A compaction moves records until the budget has just the room that a checkpoint needs. If that checkpoint is killed, the next process
// goes on in two more files of the log before it can remove one, and if it is killed, too, so does the next: the budget holds all the same.
func TestBudgetHoldsWhereCheckpointsAreKilled(t *testing.T) {
	for _, budget := range []int64{32 << 20, 64 << 20} { // whose log has files of 512 KiB, and of 1 MiB: what moves leave must do for both
		t.Run(fmt.Sprint(budget>>20, " MiB"), func(t *testing.T) { budgetBesideKills(t, budget) })
	}
}

func budgetBesideKills(t *testing.T, budget int64) {
	dir := t.TempDir()
	o := putsEvict(budget, 1<<20)
	disk := storetest.Over(vfs.OS)
	s := storetest.OpenOn(t, disk, dir, o)
	d := crashtest.Plain()
	d.BlockTokens = 512 // few records: a small index
	m := storetest.Model(t, s, d)
	newer := d
	newer.Weights = kv.HashOf("newer")
	storetest.Model(t, s, newer)
	rows := storetest.Filled(d, &kv.Prompt{Tokens: crashtest.Tokens(0, 512)}, 0, 512) // good enough for all of them: nothing is restored
	for i := 0; storetest.Engine(s).Count.Evicted.Load() == 0; i++ {
		storetest.Must(m.Put(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(i, 512)}, rows, db.PutOptions{}))(t)
	}
	var killed atomic.Bool
	before := func(c storetest.Call) error {
		if c.Changes() && strings.HasPrefix(filepath.Base(c.Name), folder.BloomName) {
			killed.Store(true)
		}
		if killed.Load() {
			return os.ErrDeadlineExceeded // the index is written, and the log still has its old file
		}
		return nil
	}
	_, err := s.Compact(t.Context(), db.CompactOptions{All: true, Progress: func(db.Progress) { disk.Before(before) }})
	if !killed.Load() {
		t.Fatalf("no checkpoint was needed: this test shows nothing (%v)", err)
	}
	storetest.Crash(s)
	left, _, _ := storetest.Occupied(t, dir)

	const processes = 10
	for i := range processes {
		disk, most, parts := storetest.Over(vfs.OS), int64(0), map[string]int64(nil)
		killed.Store(false)
		var mu sync.Mutex
		disk.Before(func(c storetest.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if n, _, p := storetest.Occupied(t, dir); c.Changes() && n > most {
				most, parts = n, p
			}
			if i < processes-1 {
				return before(c)
			}
			return nil
		})
		s = storetest.OpenOn(t, disk, dir, o)
		storetest.Model(t, s, []kv.Descriptor{d, newer}[i%2]) // the latest version now: a frame for which nobody makes room
		if err := s.Checkpoint(t.Context()); err != nil && !killed.Load() {
			t.Fatal(err)
		}
		evicted := storetest.Engine(s).Count.Evicted.Load()
		storetest.Crash(s)
		t.Logf("process %d: %d bytes at the beginning, at most %d of %d, %d blocks evicted", i, left, most, o.Budget, evicted)
		if most > o.Budget {
			t.Errorf("process %d: %d bytes are occupied of a budget of %d: %v", i, most, o.Budget, parts)
		}
		left, _, _ = storetest.Occupied(t, dir)
	}
}

// Each process that is killed leaves a segment with room that it had reserved ahead, and a file of the log. However many are killed before a checkpoint
// of theirs, that room is given back before a block goes for it.
func TestNothingIsEvictedForWhatKilledProcessesReserved(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 64<<20, 16<<20
	d := crashtest.Plain()
	const processes = 80
	for i := range processes {
		s := storetest.Open(t, dir, o)
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(i, 64)}
		if _, err := m.Put(t.Context(), p, storetest.Filled(d, &p, 0, 64), db.PutOptions{}); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		if err := storetest.Engine(s).Inside().Turn(t.Context(), false); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		evicted := storetest.Engine(s).Count.Evicted.Load()
		storetest.Crash(s)
		left, _, parts := storetest.Occupied(t, dir)
		if left > o.Budget {
			t.Errorf("process %d: %d bytes are occupied of a budget of %d: %v", i, left, o.Budget, parts)
		}
		if evicted > 0 {
			t.Fatalf("process %d: %d blocks were evicted, and %d bytes are occupied: %v", i, evicted, left, parts)
		}
	}
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, d)
	for i := range processes {
		if n, why, err := m.Probe(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(i, 64)}, db.MatchOptions{}); err != nil || n != 64 {
			t.Errorf("of prompt %d, %d tokens are stored: %v, %v", i, n, why, err)
		}
	}
}
