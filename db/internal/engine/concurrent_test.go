package engine_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Puts that run at the same time do not take the same room.
func TestConcurrentPutsHoldTheBudget(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.MaxBlocks = 4<<20, 256<<10, 150
	o.HighWater, o.LowWater = 1, 1
	s := storetest.Open(t, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
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
