package engine_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
			own := storetest.Engine(s).Measure()
			full := 0.45
			if c.high == 1 {
				full = 0.7
			}
			for storetest.Engine(s).Measure() < int64(full*float64(o.Budget)) {
				storetest.Put(t, gone, kv.Prompt{Tokens: crashtest.Tokens(int(storetest.Engine(s).Inside().Seq().Load()), 320)})
			}
			if n := evicted(); n > 0 {
				t.Fatalf("%d blocks are evicted before anything is retired: nothing is tested", n)
			}
			storetest.OK(t, s.Retire(t.Context(), gone.Fingerprint()))
			before, retired := storetest.Engine(s).Counts().Blocks, storetest.Engine(s).Measure()-own
			for i := range 60 {
				p := kv.Prompt{Tokens: crashtest.Tokens(1000+i, 320)}
				_, err := m.Put(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 320), db.PutOptions{})
				if errors.Is(err, db.ErrNoSpace) {
					break
				}
				storetest.OK(t, err)
				if c.high < 1 && storetest.Engine(s).Measure()-retired > int64(0.4*float64(o.Budget)) { // its own are too many soon
					break
				}
			}
			storetest.OK(t, storetest.Engine(s).Inside().Turn(t.Context(), true))
			if n := evicted(); n > 0 {
				t.Errorf("%d of %d blocks are evicted for a retired model that waits for a match", n, before)
			}
			if held, used := storetest.Engine(s).Inside().Held(), storetest.Engine(s).Measure(); held > used {
				t.Errorf("%d bytes wait for the match, of %d that are used", held, used)
			}
			storetest.OK(t, x.Close())
			storetest.OK(t, s.Sync(t.Context()))
			if held := storetest.Engine(s).Inside().Held(); held != 0 {
				t.Errorf("%d bytes wait for no match", held)
			}
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2000, 320)}) // there is room again
			for i := range n {
				storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 320)}, 320)
			}
		})
	}
}
