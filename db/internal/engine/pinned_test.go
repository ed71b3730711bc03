package engine_test

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// However much is pinned, the background leaves the newest conversations of those that it may evict. What is pinned no longer makes room again.
func TestPinsAboveTheWaterMarks(t *testing.T) {
	for _, share := range []float64{0.5, 0.63, 0.72} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 64<<20, 2<<20
			s, m := storetest.Fresh(t, o, bulky())
			e := storetest.Engine(s)
			common := crashtest.Tokens(9, 320)
			put := func(i int) kv.Prompt {
				p := kv.Prompt{Tokens: crashtest.Concat(common, crashtest.Tokens(i, 640))}
				storetest.Must(putBlank(m, p))(t)
				return p
			}
			n := 0
			for ; float64(e.Counts().Bytes) < share*float64(o.Budget); n++ {
				storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint(n), put(n), db.RefOptions{Pinned: true}))
			}
			var recent []kv.Prompt
			conversations := func(first int) {
				for i := range 40 {
					recent = append(recent, put(first+i))
					storetest.OK(t, e.Inside().EvictToLowWater(t.Context()))
					if i%4 > 0 {
						continue
					}
					for _, p := range recent[max(0, len(recent)-8):] {
						if got, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); err != nil || got != len(p.Tokens) {
							t.Fatalf("after %d conversations only %d tokens are there of one of the 8 newest (%v)", i, got, err)
						}
					}
				}
			}
			conversations(1000)
			if e.Counts().Bytes > o.Budget*95/100 {
				t.Errorf("%d bytes of %d", e.Counts().Bytes, o.Budget)
			}
			for i := range n {
				storetest.OK(t, s.DeleteRef(t.Context(), fmt.Sprint(i)))
			}
			conversations(2000)
			storetest.Eventually(t, "what pins keep is counted again, and what they left is evicted", func() bool {
				storetest.OK(t, e.Inside().EvictToLowWater(t.Context()))
				return e.Counts().Bytes <= o.Budget*7/10
			})
		})
	}
}
