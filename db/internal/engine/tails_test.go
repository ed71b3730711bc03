package engine_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

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
