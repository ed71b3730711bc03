package write_test

import (
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A put whose parent is being evicted at that moment stores the whole prompt all the same: it has all its rows.
func TestPutBesideEviction(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	short, long := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}, kv.Prompt{Tokens: crashtest.Tokens(1, 80)}
	storetest.Put(t, m, short)
	e := storetest.Engine(s)
	c := e.Hasher.Chain(m.Fingerprint(), 16, &short)
	last := c.Key(1)
	leaving := make(chan bool)
	go func() {
		e.Inside().CommitMu().Lock() // as evictSome has it
		leaving <- e.Pins.Leave(last)
		time.Sleep(30 * time.Millisecond)
		e.Pins.End([]kv.Key{last})
		e.Inside().CommitMu().Unlock()
	}()
	if !<-leaving {
		t.Fatal("the block is pinned")
	}
	if got := storetest.Put(t, m, long); got.Blocks != 3 || got.Reused != 2 {
		t.Errorf("%+v", got)
	}
	storetest.Expect(t, m, long, 80)
}
