package engine_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A put that could not fit into an empty store evicts nothing.
func TestImpossiblePutEvictsNothing(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	s := storetest.Open(t, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	var prompts []kv.Prompt
	for i := range 20 {
		prompts = append(prompts, kv.Prompt{Tokens: crashtest.Tokens(i+1, 64)})
		storetest.Put(t, m, prompts[i])
	}
	large := storetest.Model(t, s, crashtest.Opaque())
	for _, n := range []int64{o.Budget, o.Budget * 2, o.Budget - 4096} {
		p := kv.Prompt{Tokens: crashtest.Tokens(100, 32)}
		rows := kv.Rows{kv.Packed(32, 1, make([]byte, n))}
		if _, err := large.Put(t.Context(), p, rows, db.PutOptions{}); !errors.Is(err, db.ErrNoSpace) {
			t.Fatalf("put of %d bytes: %v", n, err)
		}
		if n := storetest.Stats(t, s).Evicted; n > 0 {
			t.Fatalf("%d blocks were evicted", n)
		}
	}
	for _, p := range prompts {
		storetest.Expect(t, m, p, 64)
	}
	total, _, parts := storetest.Occupied(t, s.Dir())
	if total > o.Budget {
		t.Errorf("%d bytes are occupied: %v", total, parts)
	}
}

// A round of match, restore and extend makes room as a put does: a match that found nothing keeps no bytes that are evicted behind it.
func TestRoundsMakeRoom(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.HighWater, o.LowWater = 1<<20, 0, 0
	s := storetest.Open(t, t.TempDir(), o)
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	for i := range 40 {
		p := kv.Prompt{Tokens: crashtest.Tokens(i, 320)}
		rows := storetest.Filled(d, &p, 0, 320)
		x, err := m.Match(t.Context(), p, db.MatchOptions{Limit: 319})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Extend(t.Context(), p, rows, db.PutOptions{}); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
