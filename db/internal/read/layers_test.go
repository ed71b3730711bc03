package read_test

import (
	"cmp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Before the first layer of a cold restore is ready, little more is asked for than its planes and the heads of the records, wherever in a record
// the planes lie. The others are read around the page cache then, whatever of the first layer is in memory by now.
func TestFirstLayerAlone(t *testing.T) {
	for name, order := range map[string]func(a, b kv.Tensor) int{
		"layer by layer":     func(a, b kv.Tensor) int { return cmp.Compare(a.Layer, b.Layer) },
		"all K before all V": func(a, b kv.Tensor) int { return cmp.Compare(a.Role, b.Role) },
		"last layer first":   func(a, b kv.Tensor) int { return cmp.Compare(b.Layer, a.Layer) },
	} {
		t.Run(name, func(t *testing.T) {
			const layers, tokens = 16, 1024
			d := crashtest.Plain()
			x := d.Tensors[0]
			x.Width, d.BlockTokens, d.Tensors = 512, 64, nil
			for x.Layer = range layers {
				for _, x.Role = range []kv.Role{kv.RoleK, kv.RoleV} {
					d.Tensors = append(d.Tensors, x)
				}
			}
			slices.SortStableFunc(d.Tensors, order)
			var asked, direct atomic.Int64
			disk := storetest.Cold(nil)
			o := storetest.Options()
			o.Codec = quant.Raw
			s := storetest.OpenOn(t, disk, memdir.Disk(t), o)
			m := storetest.Model(t, s, d)
			p := kv.Prompt{Tokens: crashtest.Tokens(1, tokens)}
			storetest.Put(t, m, p)
			stored := int64(0)
			for b, err := range s.Blocks(t.Context()) {
				storetest.OK(t, err)
				stored += b.Bytes
			}
			disk.Before(func(c storetest.Call) error {
				switch c.Kind {
				case "willneed":
					asked.Add(c.N)
				case "readdirect":
					direct.Add(c.N)
				}
				return nil
			})
			f := storetest.Match(t, m, p)
			defer f.Close()
			rows, next := storetest.Empty(d, tokens), 0
			got, err := f.RestoreLayers(t.Context(), rows, func(layer, _ int) {
				if layer != next {
					t.Errorf("layer %d is ready, expected %d", layer, next)
				}
				if next++; layer > 0 {
					return
				}
				const slack = tokens / 64 * (16 << 10) // of each record: its head, and pages that are asked for in part
				if n := asked.Load(); n < stored/layers || n > stored/layers+slack || direct.Load() != 0 {
					t.Errorf("%d bytes were asked for and %d read around the page cache before the first of %d layers of %d bytes", n, direct.Load(), layers, stored)
				}
			})
			if err != nil || got.Tokens != tokens || next != layers {
				t.Fatalf("%+v, %v, %d layers", got, err, next)
			}
			storetest.CheckRows(t, d, &p, rows, tokens)
			if n := direct.Load(); n < stored/layers*(layers-1)*9/10 {
				t.Errorf("%d bytes of %d were read around the page cache", n, stored)
			}
		})
	}
}
