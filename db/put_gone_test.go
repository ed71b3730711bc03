package db

import (
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// A put whose parent is being evicted at that moment stores the whole prompt all the same: it has all its rows.
func TestPutBesideEviction(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	short, long := kv.Prompt{Tokens: tokens(1, 32)}, kv.Prompt{Tokens: tokens(1, 80)}
	put(t, m, short)
	e := s.eng
	c := e.Hasher.Chain(m.ms.Fingerprint, 16, &short)
	last := c.Key(1)
	e.Inside().LogMu().Lock() // as evictSome has it
	if !e.Pins.Leave(last, 0) {
		t.Fatal("the block is pinned")
	}
	go func() {
		time.Sleep(30 * time.Millisecond)
		e.Pins.End([]kv.Key{last})
		e.Inside().LogMu().Unlock()
	}()
	if got := put(t, m, long); got.Blocks != 3 || got.Reused != 2 {
		t.Errorf("%+v", got)
	}
	expect(t, m, long, 80)
}
