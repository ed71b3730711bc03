//go:build linux

package full

import (
	"testing"
)

// A store that leaves nothing free for others fills the disk, and then evicts: no put is refused as long as anything can go, the log and
// the index have the room that they need, and what was put last is there. When others take all that is left, it evicts for that, too.
func TestEvictsOnAFullDisk(t *testing.T) {
	inSmallFS(t, func(t *testing.T, dir string) {
		s, m := open(t, dir, options())
		b := newBalloon(t, dir)
		id := uint64(0)
		puts := func(n int) {
			t.Helper()
			for range n {
				if err := put(m, id, 0, 5); err != nil {
					t.Fatalf("put %d: %v", id, err)
				}
				if got, err := found(m, id, 5); got != 5 || err != nil {
					t.Fatalf("put %d: %d of 5 blocks, %v", id, got, err)
				}
				id++
			}
		}
		evicted := func() int64 {
			st, err := s.Stats()
			if err != nil {
				t.Fatal(err)
			}
			return st.Evicted
		}
		puts(500)
		full := evicted()
		if full == 0 {
			t.Fatal("nothing was evicted: this test shows nothing")
		}
		for range 5 { // as much as the store leaves for its own checkpoints
			b.grow(1 << 20)
			puts(20)
		}
		b.fill()
		puts(20)
		if n := evicted(); n == full {
			t.Error("nothing was evicted for others")
		}
		if err := s.Checkpoint(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		verify(t, dir, true)
		s, m = open(t, dir, options())
		if got, err := found(m, id-1, 5); got != 5 || err != nil {
			t.Errorf("%d of 5 blocks of the last put, %v", got, err)
		}
		if _, err := s.Shrink(ctx, 1); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
