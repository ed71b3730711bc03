package read_test

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Whatever reads around the page cache fail or lie, of whichever parts of records: each layer is right when it is ready, and so is a restore at
// once, and one piece by piece.
func TestDirectFaultsOfParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := drawModel(rt)
		o := storetest.Options()
		o.Codec = rapid.SampledFrom([]quant.Codec{quant.Raw, quant.Q8_0}).Draw(rt, "codec")
		x := drawDirect(t, rt, o, d)
		defer x.s.Close()
		p := kv.Prompt{Tokens: crashtest.Tokens(1, rapid.IntRange(100, 1200).Draw(rt, "tokens"))}
		n := len(p.Tokens)
		storetest.Put(t, x.m, p)
		x.throughTheMap(rt, p)
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "faults"), 1))
		oneIn := rapid.SampledFrom([]int{1, 2, 4}).Draw(rt, "one of")
		lie := rapid.Bool().Draw(rt, "lie")
		hit := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return r.IntN(oneIn) == 0
		}
		if lie {
			x.disk.Spoil(func(b []byte) {
				if hit() {
					b[len(b)/3] ^= 4
				}
			})
		} else {
			x.disk.Before(func(c storetest.Call) error {
				if (c.Kind == "readdirect" || c.Kind == "opendirect") && hit() {
					return syscall.EIO
				}
				return nil
			})
		}
		x.sameRows(rt, func(int, int) {})
		piece := rapid.IntRange(1, n).Draw(rt, "piece")
		x.same(rt, "in pieces", func(m *db.Match, rows kv.Rows) (got db.Restored, err error) {
			for from := 0; from < n && err == nil; from += piece {
				part := make(kv.Rows, len(rows))
				for i := range rows {
					part[i] = rows[i].Slice(d.Tensors[i], max(from, rows[i].First), min(n, from+piece))
				}
				got, err = m.RestoreRange(t.Context(), part)
			}
			return got, err
		})
		x.disk.Before(nil)
		x.disk.Spoil(nil)
	})
}
