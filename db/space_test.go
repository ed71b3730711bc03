package db

import (
	"errors"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Puts that run at the same time do not take the same room.
func TestConcurrentPutsHoldTheBudget(t *testing.T) {
	o := options()
	o.Budget, o.SegmentBytes, o.MaxBlocks = 4<<20, 256<<10, 150
	o.HighWater, o.LowWater = 1, 1
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 60 {
				p := kv.Prompt{Tokens: tokens(g*1000+i, 100)}
				if _, err := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, 100), PutOptions{}); err != nil {
					if n := new(NotStoredError); errors.As(err, &n) || errors.Is(err, ErrNoSpace) {
						continue // its own prefix was evicted, or all is held by the others
					}
					t.Error(err)
				}
				if n := s.eng.Counts().Blocks; n > o.MaxBlocks {
					t.Errorf("%d blocks, at most %d", n, o.MaxBlocks)
				}
				if used := s.eng.Measure(); used > o.Budget {
					t.Errorf("%d bytes are used of a budget of %d: segments %d, index %d, log %d", used, o.Budget, s.eng.Segments.Allocated(), s.eng.Index.Bytes(), s.eng.Inside().Wal().Bytes())
				}
			}
		})
	}
	wait.Wait()
	if _, reserved, blocks := s.eng.Inside().Space(); reserved != 0 || blocks != 0 {
		t.Errorf("%d bytes and %d blocks are still reserved", reserved, blocks)
	}
}
