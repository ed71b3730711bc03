package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// What a retired model occupies while a match is open is on its way out: nothing of others is evicted in its place, neither in
// the background nor by puts.
func TestRetiredModelUnderALease(t *testing.T) {
	for _, c := range []struct {
		name      string
		high, low float64
	}{{"in the background", 0.5, 0.3}, {"by puts", 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Budget, o.SegmentBytes = 8<<20, 256<<10
			o.HighWater, o.LowWater = c.high, c.low
			s := open(t, t.TempDir(), o)
			other := plain()
			other.Weights[0] = 7
			other.Name = "gone"
			gone, m := model(t, s, other), model(t, s, plain())
			evicted := func() int64 {
				st, err := s.Stats()
				if err != nil {
					t.Fatal(err)
				}
				return st.Evicted
			}
			n := 8
			for i := range n {
				put(t, m, kv.Prompt{Tokens: tokens(i, 320)})
			}
			x, err := m.Match(ctx, kv.Prompt{Tokens: tokens(0, 320)}, MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			own := s.eng.Measure()
			full := 0.45
			if c.high == 1 {
				full = 0.7
			}
			for s.eng.Measure() < int64(full*float64(o.Budget)) {
				put(t, gone, kv.Prompt{Tokens: tokens(int(s.eng.Inside().Seq().Load()), 320)})
			}
			if n := evicted(); n > 0 {
				t.Fatalf("%d blocks are evicted before anything is retired: nothing is tested", n)
			}
			if err := s.Retire(ctx, gone.Fingerprint()); err != nil {
				t.Fatal(err)
			}
			before, retired := s.eng.Counts().Blocks, s.eng.Measure()-own
			for i := range 60 {
				p := kv.Prompt{Tokens: tokens(1000+i, 320)}
				_, err := m.Put(ctx, p, filled(plain(), &p, 0, 320), PutOptions{})
				if errors.Is(err, ErrNoSpace) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.high < 1 && s.eng.Measure()-retired > int64(0.4*float64(o.Budget)) { // its own are too many soon
					break
				}
			}
			if err := s.eng.Inside().Turn(ctx, true); err != nil {
				t.Fatal(err)
			}
			if n := evicted(); n > 0 {
				t.Errorf("%d of %d blocks are evicted for a retired model that waits for a match", n, before)
			}
			if held, used := s.eng.Inside().Held(), s.eng.Measure(); held > used {
				t.Errorf("%d bytes wait for the match, of %d that are used", held, used)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
			if held := s.eng.Inside().Held(); held != 0 {
				t.Errorf("%d bytes wait for no match", held)
			}
			put(t, m, kv.Prompt{Tokens: tokens(2000, 320)}) // there is room again
			for i := range n {
				expect(t, m, kv.Prompt{Tokens: tokens(i, 320)}, 320)
			}
		})
	}
}
