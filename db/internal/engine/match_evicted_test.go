package engine_test

import (
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// beforeOpen is a disk that runs something once before a segment is opened, when the test has said what.
func beforeOpen(what *atomic.Pointer[func()]) *storetest.Disk {
	return storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "open" && c.InSegments() {
			if do := what.Swap(nil); do != nil {
				storetest.Meanwhile(*do)
			}
		}
		return nil
	})
}

// A block that is evicted after a match found it, and before the match rests on it, is none that the match rests on: what it
// promises cannot be evicted.
func TestMatchBesideAnEviction(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 48)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	var before atomic.Pointer[func()]
	s = storetest.OpenOn(t, beforeOpen(&before), dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	met := false
	evict := func() { // the match compares the tokens of the last block
		met = true
		if n, err := storetest.Engine(s).Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Error(n, err)
		}
	}
	before.Store(&evict)
	q := p.Prefix(40)
	x := storetest.Match(t, m, q)
	defer x.Close()
	if !met {
		t.Fatal("nothing was evicted meanwhile")
	}
	storetest.Must(storetest.Engine(s).Inside().EvictBlocks(3))(t)
	rows := storetest.Empty(crashtest.Plain(), 40)
	promised := x.Tokens()
	got, err := x.Restore(t.Context(), rows)
	if err != nil || got.Tokens != promised || promised < 32 {
		t.Fatalf("a match of %d tokens gives %d (%v, %v)", promised, got.Tokens, got.Reason, err)
	}
	storetest.CheckRows(t, crashtest.Plain(), &q, rows, got.Tokens)
}

// A state that is given up after a match found it, and before the match rests on it, is none that the match promises.
func TestMatchBesideAStateThatGoes(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Hybrid(), crashtest.Opaque()} {
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		for _, n := range []int{20, 32, 45, 64} {
			storetest.PutState(t, storetest.Model(t, s, d), p.Prefix(n), 0)
		}
		storetest.OK(t, s.Close())
		var before atomic.Pointer[func()]
		s = storetest.OpenOn(t, beforeOpen(&before), dir, storetest.Options())
		m := storetest.Model(t, s, d)
		met := false
		thin := func() { // the match compares the tokens of the last block
			met = true
			if err := storetest.Engine(s).Inside().ThinStates(storetest.Engine(s).Catalog.Model(m.Fingerprint()), &p, 2); err != nil {
				t.Error(err)
			}
		}
		before.Store(&thin)
		q := p.Prefix(40)
		x := storetest.Match(t, m, q)
		defer x.Close()
		if !met {
			t.Fatal("no state went meanwhile")
		}
		promised := x.Tokens()
		rows := storetest.Empty(d, len(q.Tokens))
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != promised || promised != 20 {
			t.Errorf("%s: a match of %d tokens gives %d (%v, %v), expected 20", d.Name, promised, got.Tokens, got.Reason, err)
		}
		storetest.CheckRows(t, d, &q, rows, got.Tokens)
	}
}
