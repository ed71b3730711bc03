package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A put that could not fit into an empty store evicts nothing.
func TestImpossiblePutEvictsNothing(t *testing.T) {
	o := options()
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	var prompts []kv.Prompt
	for i := range 20 {
		prompts = append(prompts, kv.Prompt{Tokens: tokens(i+1, 64)})
		put(t, m, prompts[i])
	}
	large := model(t, s, opaque())
	for _, n := range []int64{o.Budget, o.Budget * 2, o.Budget - 4096} {
		p := kv.Prompt{Tokens: tokens(100, 32)}
		rows := kv.Rows{kv.Packed(32, 1, make([]byte, n))}
		if _, err := large.Put(ctx, p, rows, PutOptions{}); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("put of %d bytes: %v", n, err)
		}
		if n := s.eng.count.evicted.Load(); n > 0 {
			t.Fatalf("%d blocks were evicted", n)
		}
	}
	for _, p := range prompts {
		expect(t, m, p, 64)
	}
	total, _, parts := occupied(t, s.Dir())
	if total > o.Budget {
		t.Errorf("%d bytes are occupied: %v", total, parts)
	}
}

// A round of match, restore and extend makes room as a put does: a match that found nothing keeps no bytes that are evicted behind it.
func TestRoundsMakeRoom(t *testing.T) {
	o := options()
	o.Budget, o.HighWater, o.LowWater = 1<<20, 0, 0
	s := open(t, t.TempDir(), o)
	d := plain()
	m := model(t, s, d)
	for i := range 40 {
		p := kv.Prompt{Tokens: tokens(i, 320)}
		rows := filled(d, &p, 0, 320)
		x, err := m.Match(ctx, p, MatchOptions{Limit: 319})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Extend(ctx, p, rows, PutOptions{}); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
