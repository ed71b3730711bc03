package engine_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A store that is full takes what every round adds, match, restore and extension, though matches are open: its own, that of somebody else all
// the time, and some whose extensions replace partial blocks again and again. What those found stays to be had until they are closed.
func TestRoundsInAFullStore(t *testing.T) {
	for _, c := range []struct {
		name      string
		high, low float64
	}{{"in the background", 0.7, 0.6}, {"by puts", 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 6<<20, 256<<10
			o.HighWater, o.LowWater = c.high, c.low
			d := crashtest.Plain()
			s, m := storetest.Fresh(t, o, d)
			long := kv.Prompt{Tokens: crashtest.Tokens(1, 330)}
			storetest.Put(t, m, long)
			other := crashtest.Concat(long.Tokens[:325], crashtest.Tokens(2, 20)) // it ends within the block of another prompt
			x := storetest.Match(t, m, kv.Prompt{Tokens: other})
			if x.Tokens() != 325 {
				t.Fatalf("matched %d tokens: %v", x.Tokens(), x.Reason())
			}
			grown := kv.Prompt{Tokens: crashtest.Tokens(3, 35)}
			storetest.Put(t, m, grown)
			chat := storetest.Match(t, m, grown)
			for i := range 400 {
				p := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(7, 80), crashtest.Tokens(100+i, 220))}
				if i%2 == 0 { // its match finds nothing, and keeps no bytes that are evicted behind it
					p.Tokens = crashtest.Tokens(100+i, 300)
				}
				round := storetest.Must(m.Match(t.Context(), p, db.MatchOptions{Limit: len(p.Tokens) - 1}))(t)
				rows := storetest.Empty(d, len(p.Tokens))
				got := storetest.Must(round.Restore(t.Context(), rows))(t)
				storetest.CheckRows(t, d, &p, rows, got.Tokens)
				if _, err := round.Extend(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{}); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
				storetest.OK(t, round.Close())
				if i%4 == 0 { // a chat whose match nobody closes
					grown.Tokens = crashtest.Concat(grown.Tokens, crashtest.Tokens(1000+i, 9))
					if _, err := chat.Extend(t.Context(), grown, storetest.Filled(d, &grown, 0, len(grown.Tokens)), db.PutOptions{}); err != nil {
						t.Fatalf("round %d: %v", i, err)
					}
				}
				if i == 50 { // from here on it rests on another block, too
					p := kv.Prompt{Tokens: other}
					storetest.Must(x.Extend(t.Context(), p, storetest.Filled(d, &p, 0, len(other)), db.PutOptions{}))(t)
				}
			}
			if n := storetest.Stats(t, s).Evicted; n < 1000 {
				t.Errorf("%d blocks were evicted: the store was not full", n)
			}
			for _, open := range []struct {
				x    *db.Match
				p    kv.Prompt
				want int
			}{{x, kv.Prompt{Tokens: other}, 325}, {chat, grown, 35}} {
				rows := storetest.Empty(d, len(open.p.Tokens))
				got, err := open.x.Restore(t.Context(), rows)
				if err != nil || got.Tokens != open.want {
					t.Errorf("an open match gives %d tokens of %d: %v %v", got.Tokens, open.want, got.Reason, err)
				}
				storetest.CheckRows(t, d, &open.p, rows, got.Tokens)
				storetest.OK(t, open.x.Close())
			}
			storetest.Expect(t, m, grown, len(grown.Tokens))
			storetest.OK(t, s.Sync(t.Context()))
			if pinned, leaving := storetest.Engine(s).Pins.Counts(); pinned+leaving > 0 {
				t.Errorf("%d blocks are pinned, %d leaving", pinned, leaving)
			}
			if used := storetest.Engine(s).Measure(); used > o.Budget {
				t.Errorf("%d bytes are used of %d", used, o.Budget)
			}
			storetest.Sound(t, s)
		})
	}
}

// Matches that others hold open, and restore from now and then, neither keep what is evicted nor lose what they found.
func TestOpenMatchesInAFullStore(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 6<<20, 256<<10
	d := crashtest.Windowed(24)
	s, m := storetest.Fresh(t, o, d)
	type held struct {
		x *db.Match
		p kv.Prompt
		n int
	}
	var open []held
	rnd := rand.New(rand.NewPCG(1, 2))
	check := func(h held) {
		t.Helper()
		rows := storetest.Empty(d, len(h.p.Tokens))
		got, err := h.x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != h.n {
			t.Fatalf("an open match gives %d tokens of %d: %v %v", got.Tokens, h.n, got.Reason, err)
		}
		storetest.CheckRows(t, d, &h.p, rows, got.Tokens)
	}
	for i := range 500 {
		p := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(rnd.IntN(20), 100), crashtest.Tokens(100+rnd.IntN(100), 120+rnd.IntN(100)))}
		if _, err := m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{}); err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:50+rnd.IntN(len(p.Tokens)-50)], crashtest.Tokens(3000+i, 20))}
		x := storetest.Match(t, m, q)
		open = append(open, held{x, q, x.Tokens()})
		if i%3 == 0 {
			check(open[rnd.IntN(len(open))])
		}
		if len(open) > 12 {
			k := rnd.IntN(len(open))
			check(open[k])
			storetest.OK(t, open[k].x.Close())
			open[k] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	if n := storetest.Stats(t, s).Evicted; n < 100 {
		t.Errorf("%d blocks were evicted: the store was not full", n)
	}
	for _, h := range open {
		check(h)
		storetest.OK(t, h.x.Close())
	}
	storetest.Sound(t, s)
}

// A budget that is lowered again and again leaves a store that takes puts: the index shrinks with what goes.
func TestBudgetLoweredToTheIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: with -short, because it stores 300 MB")
	}
	dir, o := t.TempDir(), storetest.Options()
	o.CheckpointInterval, o.CheckpointBytes = 0, 0
	d := crashtest.Plain()
	d.BlockTokens, d.Tensors = 64, d.Tensors[:2]
	n := 0
	for _, c := range []struct{ mib, prompts, tokens int64 }{{1024, 60, 25600}, {64, 200, 192}, {16, 200, 192}, {8, 200, 192}, {4, 200, 192}} {
		o.Budget, o.SegmentBytes = c.mib<<20, 0
		s := storetest.Open(t, dir, o)
		m := storetest.Model(t, s, d)
		for range c.prompts {
			n++
			p := kv.Prompt{Tokens: crashtest.Tokens(n, int(c.tokens))}
			if _, err := m.Put(t.Context(), p, storetest.Filled(d, &p, 0, int(c.tokens)), db.PutOptions{}); err != nil {
				t.Fatalf("put %d with %d MiB: %v", n, c.mib, err)
			}
		}
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(n, int(c.tokens))}, int(c.tokens))
		t.Logf("%d MiB: %d blocks", c.mib, storetest.Engine(s).Counts().Blocks)
		storetest.OK(t, s.Close())
	}
}

// A deletion under an open match takes what the match rests on: it rests on what is before that then, and nobody evicts that.
func TestDeletionAndEvictionUnderAMatch(t *testing.T) {
	o := storetest.Options()
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, o, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 160)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	viewed := 0
	err := x.View(t.Context(), func(plane db.StoredPlane) error {
		if viewed++; viewed == 1 {
			before := bytes.Clone(plane.Bytes)
			storetest.Meanwhile(func() {
				storetest.Must(m.Delete(t.Context(), p.Prefix(150)))(t)
				_, _, err := storetest.Engine(s).Shrink(t.Context(), 0)
				storetest.OK(t, err)
				storetest.OK(t, s.Checkpoint(t.Context()))
			})
			if left := storetest.Engine(s).Counts().Blocks; left != 9 {
				t.Errorf("%d blocks are left, not the 9 before the one that was deleted", left)
			}
			if !bytes.Equal(before, plane.Bytes) {
				t.Error("a plane that is being looked at has other bytes")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	storetest.OK(t, x.Close())
	storetest.OK(t, s.Sync(t.Context()))
	if held := storetest.Engine(s).Inside().Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}
