package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A compaction moves records until the budget has just the room that a checkpoint needs. If that checkpoint is killed, the next process
// goes on in two more files of the log before it can remove one, and if it is killed, too, so does the next: the budget holds all the same.
func TestBudgetHoldsWhereCheckpointsAreKilled(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 32<<20, 1<<20
	o.HighWater, o.LowWater = 1, 1
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
