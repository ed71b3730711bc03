package engine_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
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
			if used := storetest.Engine(s).Budget.Measure(); used > o.Budget {
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

// What a retired model occupies while a match is open is on its way out: nothing of others is evicted in its place, neither in
// the background nor by puts.
func TestRetiredModelUnderALease(t *testing.T) {
	for _, c := range []struct {
		name      string
		high, low float64
	}{{"in the background", 0.5, 0.3}, {"by puts", 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 8<<20, 256<<10
			o.HighWater, o.LowWater = c.high, c.low
			s := storetest.Open(t, t.TempDir(), o)
			other := crashtest.Plain()
			other.Weights[0] = 7
			other.Name = "gone"
			gone, m := storetest.Model(t, s, other), storetest.Model(t, s, crashtest.Plain())
			evicted := func() int64 {
				st := storetest.Must(s.Stats())(t)
				return st.Evicted
			}
			n := 8
			for i := range n {
				storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 320)})
			}
			x := storetest.Match(t, m, kv.Prompt{Tokens: crashtest.Tokens(0, 320)})
			defer x.Close()
			own := storetest.Engine(s).Budget.Measure()
			full := 0.45
			if c.high == 1 {
				full = 0.7
			}
			for storetest.Engine(s).Budget.Measure() < int64(full*float64(o.Budget)) {
				storetest.Put(t, gone, kv.Prompt{Tokens: crashtest.Tokens(int(storetest.Engine(s).Ledger.Seq.Load()), 320)})
			}
			if n := evicted(); n > 0 {
				t.Fatalf("%d blocks are evicted before anything is retired: nothing is tested", n)
			}
			storetest.OK(t, s.Retire(t.Context(), gone.Fingerprint()))
			before, retired := storetest.Engine(s).Ledger.Counts().Blocks, storetest.Engine(s).Budget.Measure()-own
			for i := range 60 {
				p := kv.Prompt{Tokens: crashtest.Tokens(1000+i, 320)}
				_, err := m.Put(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 320), db.PutOptions{})
				if errors.Is(err, db.ErrNoSpace) {
					break
				}
				storetest.OK(t, err)
				if c.high < 1 && storetest.Engine(s).Budget.Measure()-retired > int64(0.4*float64(o.Budget)) { // its own are too many soon
					break
				}
			}
			storetest.OK(t, storetest.Engine(s).Inside().Turn(t.Context(), true))
			if n := evicted(); n > 0 {
				t.Errorf("%d of %d blocks are evicted for a retired model that waits for a match", n, before)
			}
			if held, used := storetest.Engine(s).Segments.Held(), storetest.Engine(s).Budget.Measure(); held > used {
				t.Errorf("%d bytes wait for the match, of %d that are used", held, used)
			}
			storetest.OK(t, x.Close())
			storetest.OK(t, s.Sync(t.Context()))
			if held := storetest.Engine(s).Segments.Held(); held != 0 {
				t.Errorf("%d bytes wait for no match", held)
			}
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2000, 320)}) // there is room again
			for i := range n {
				storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 320)}, 320)
			}
		})
	}
}
