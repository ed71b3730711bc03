package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Records that were put, and moved on and on, between two checkpoints are there after a power cut: the places that they left are
// destroyed by then.
func TestMovedOnBetweenCheckpoints(t *testing.T) {
	for i := range 4 {
		begun, lost := i&1 > 0, i&2 > 0 // a checkpoint comes between the put and the moves; the index is lost
		for moves := range 3 {
			dir := t.TempDir()
			o := options()
			o.Durability = Power
			s := open(t, dir, o)
			m := model(t, s, windowed(40))
			p := kv.Tokens(tokens(1, 100)...)
			put(t, m, p)
			if begun {
				if err := s.Checkpoint(ctx); err != nil {
					t.Fatal(err)
				}
			}
			for range moves {
				if err := s.eng.set.SealAll(); err != nil {
					t.Fatal(err)
				}
				var out Compacted
				if err := s.eng.rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records == 0 {
					t.Fatal(err, out)
				}
				if err := s.Sync(ctx); err != nil { // destroys the old places
					t.Fatal(err)
				}
			}
			image := copyStore(t, dir)
			if err := os.WriteFile(filepath.Join(image, unsyncedName), nil, 0o600); err != nil { // as after a reboot
				t.Fatal(err)
			}
			if lost {
				if err := os.Remove(filepath.Join(image, indexName)); err != nil {
					t.Fatal(err)
				}
			}
			s = open(t, image, o)
			t.Logf("checkpoint %v, index lost %v, %d moves", begun, lost, moves)
			expect(t, model(t, s, windowed(40)), p, 100)
			if got, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(got.Damage) > 0 {
				t.Error(got.Damage, err)
			}
		}
	}
}

// A tail that a longer block took the place of is gone with its window rows after a power cut, also where another block of the same
// put went since.
func TestSupersededTailIsGone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, windowed(40))
	p := kv.Tokens(tokens(1, 100)...)
	put(t, m, p.Prefix(40))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	put(t, m, p.Prefix(90))
	put(t, m, p)
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	image := copyStore(t, dir)
	if err := os.WriteFile(filepath.Join(image, unsyncedName), nil, 0o600); err != nil { // as after a reboot
		t.Fatal(err)
	}
	s = open(t, image, options())
	expect(t, model(t, s, windowed(40)), p, 100)
	if got, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(got.Damage) > 0 {
		t.Error(got.Damage, err)
	}
}
