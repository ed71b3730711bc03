package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// DepthCap drops the far end of a long session before anything else, however late that was used, and keeps every beginning.
func TestDepthCapKeepsBeginnings(t *testing.T) {
	o := options()
	o.Policy = DepthCap(64)
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	short, long := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 160)}
	put(t, m, short)
	put(t, m, long)
	expect(t, m, long, 160) // used last
	for left := 144; left >= 64; left -= 16 {
		if n, err := s.eng.Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatalf("%d blocks were evicted, %v", n, err)
		}
		expect(t, m, long, left)
	}
	expect(t, m, short, 64)
	if n, err := s.eng.Inside().EvictBlocks(1); err != nil || n != 1 { // among equals the one that was used first
		t.Fatalf("%d blocks were evicted, %v", n, err)
	}
	expect(t, m, long, 48)
	expect(t, m, short, 64)
}
