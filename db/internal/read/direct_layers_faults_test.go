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
	"github.com/dormousekv/dormouse/internal/memdir"
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
		disk := storetest.Cold(patches(rapid.Uint64().Draw(rt, "seed"), rapid.SampledFrom([]uint64{0, 4}).Draw(rt, "in memory, one of")))
		s, err := storetest.TryOpen(disk, memdir.Disk(t), o)
		storetest.OK(rt, err)
		defer s.Close()
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(1, rapid.IntRange(100, 1200).Draw(rt, "tokens"))}
		n := len(p.Tokens)
		storetest.Put(t, m, p)
		want := restored(rt, m, p, func(x *db.Match, rows kv.Rows) (db.Restored, error) {
			disk.Deny(true)
			defer disk.Deny(false)
			return x.Restore(t.Context(), rows)
		})
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
			disk.Spoil(func(b []byte) {
				if hit() {
					b[len(b)/3] ^= 4
				}
			})
		} else {
			disk.Before(func(c storetest.Call) error {
				if (c.Kind == "readdirect" || c.Kind == "opendirect") && hit() {
					return syscall.EIO
				}
				return nil
			})
		}
		same := func(what string, restore func(x *db.Match, rows kv.Rows) (db.Restored, error)) {
			got := restored(rt, m, p, restore)
			for i := range got {
				if got[i] != want[i] {
					rt.Fatalf("%s: tensor %d differs from a restore through the map", what, i)
				}
			}
		}
		same("at once", func(x *db.Match, rows kv.Rows) (db.Restored, error) { return x.Restore(t.Context(), rows) })
		same("by layers", func(x *db.Match, rows kv.Rows) (db.Restored, error) {
			return x.RestoreLayers(t.Context(), rows, func(layer, tokens int) {
				for i, tensor := range d.Tensors {
					if tensor.Layer <= layer && string(rows[i].Pieces[0].Mem) != want[i] {
						rt.Fatalf("tensor %d is not there when layer %d is ready", i, layer)
					}
				}
			})
		})
		piece := rapid.IntRange(1, n).Draw(rt, "piece")
		same("in pieces", func(x *db.Match, rows kv.Rows) (got db.Restored, err error) {
			for from := 0; from < n && err == nil; from += piece {
				part := make(kv.Rows, len(rows))
				for i := range rows {
					part[i] = rows[i].Slice(d.Tensors[i], max(from, rows[i].First), min(n, from+piece))
				}
				got, err = x.RestoreRange(t.Context(), part)
			}
			return got, err
		})
		disk.Before(nil)
		disk.Spoil(nil)
	})
}
