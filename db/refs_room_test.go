package db

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A ref makes the room that it takes: in a full store blocks go for it, and where none may go it is refused.
func TestRefsMakeRoom(t *testing.T) {
	o := options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	for i := range 24 {
		put(t, m, kv.Prompt{Tokens: tokens(10+i, 640)})
	}
	keep := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, keep)
	before := s.eng.counts().Blocks
	refused := false
	for i := 0; i < 1500 && !refused; i++ {
		err := m.SetRef(ctx, fmt.Sprint("ref ", i), keep, RefOptions{Pinned: true, Meta: make([]byte, MaxRefMeta)})
		if refused = errors.Is(err, ErrNoSpace); err != nil && !refused {
			t.Fatal(i, err)
		}
		if i%50 == 0 {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if total, _, parts := occupied(t, dir); total > o.Budget {
			t.Fatalf("%d refs: %d bytes are occupied of a budget of %d: %v", i, total, o.Budget, parts)
		}
	}
	if n := s.eng.counts().Blocks; n >= before {
		t.Errorf("%d blocks of %d stay", n, before)
	}
	if !refused {
		t.Error("refs of 6 MB with their copies fit into 8 MB")
	}
	expect(t, m, keep, 64)
	if err := s.DeleteRef(ctx, "ref 0"); err != nil {
		t.Error(err)
	}
}
