package engine_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// DepthCap drops the far end of a long session before anything else, however late that was used, and keeps every beginning.
func TestDepthCapKeepsBeginnings(t *testing.T) {
	o := storetest.Options()
	o.Policy = db.DepthCap(64)
	s := storetest.Open(t, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	short, long := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 160)}
	storetest.Put(t, m, short)
	storetest.Put(t, m, long)
	storetest.Expect(t, m, long, 160) // used last
	for left := 144; left >= 64; left -= 16 {
		if n, err := storetest.Engine(s).Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatalf("%d blocks were evicted, %v", n, err)
		}
		storetest.Expect(t, m, long, left)
	}
	storetest.Expect(t, m, short, 64)
	if n, err := storetest.Engine(s).Inside().EvictBlocks(1); err != nil || n != 1 { // among equals the one that was used first
		t.Fatalf("%d blocks were evicted, %v", n, err)
	}
	storetest.Expect(t, m, long, 48)
	storetest.Expect(t, m, short, 64)
}
