package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A compaction moves records until the budget has just the room that a checkpoint needs. If that checkpoint is killed, the next process
// goes on in two more files of the log before it can remove one: the budget holds all the same.
func TestBudgetHoldsAfterAKilledCompaction(t *testing.T) {
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
		if _, err := m.Put(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(i, 512)}, rows, db.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	killed := false
	before := func(c storetest.Call) error {
		if killed = killed || c.Changes() && strings.HasPrefix(filepath.Base(c.Name), folder.BloomName); killed {
			return os.ErrDeadlineExceeded // the index is written, and the log still has its old file
		}
		return nil
	}
	_, err := s.Compact(t.Context(), db.CompactOptions{All: true, Progress: func(db.Progress) { disk.Before(before) }})
	if !killed {
		t.Fatalf("no checkpoint was needed: this test shows nothing (%v)", err)
	}
	storetest.Crash(s)
	left, _, _ := storetest.Occupied(t, dir)

	var most int64
	var parts map[string]int64
	disk = storetest.Over(vfs.OS)
	disk.Before(func(c storetest.Call) error {
		if n, _, p := storetest.Occupied(t, dir); c.Changes() && n > most {
			most, parts = n, p
		}
		return nil
	})
	s = storetest.OpenOn(t, disk, dir, o)
	storetest.Model(t, s, d) // the latest version now: a frame for which nobody makes room
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes as it was left, at most %d, of a budget of %d: %v", left, most, o.Budget, parts)
	if most > o.Budget {
		t.Errorf("%d bytes are occupied of a budget of %d: %v", most, o.Budget, parts)
	}
}
