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
	s, m := storetest.Fresh(t, o, crashtest.Plain())
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

// A block that becomes a leaf when its child goes, and has a lower priority than that had, goes before other leaves of the child's priority.
func TestColdParentGoesNext(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	pair, other := kv.Tokens(crashtest.Tokens(1, 32)...), kv.Tokens(crashtest.Tokens(2, 16)...)
	for name, p := range map[string]kv.Prompt{"pair": pair, "other": other} {
		storetest.Put(t, m, p)
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Priority: 2}))
	}
	storetest.Expect(t, m, pair, 32)
	storetest.Expect(t, m, other, 16) // used last
	n := storetest.Must(storetest.Engine(s).Inside().EvictBlocks(2))(t)
	storetest.Expect(t, m, pair, 0)
	storetest.Expect(t, m, other, 16)
	if n != 2 {
		t.Errorf("%d blocks were evicted", n)
	}
}
