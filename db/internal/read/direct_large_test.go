package read_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// A plane as large as the ring has not room in it, since it begins in the middle of a page: its record, and no other one, is read through the map.
func TestDirectPlaneAsLargeAsTheRing(t *testing.T) {
	d := crashtest.Toy(kv.Descriptor{Name: "large", BlockTokens: 512, Tensors: []kv.Tensor{
		{Role: kv.RoleK, DType: kv.F16, Width: 1024}, {Role: kv.RoleV, DType: kv.F16, Width: 8192}, // 1 and 8 MiB
	}})
	o := storetest.Options()
	o.Codec = quant.Raw
	var seen directs
	disk := storetest.Cold(nil)
	s := storetest.OpenOn(t, disk, memdir.Disk(t), o)
	m := storetest.Model(t, s, d)
	disk.Before(func(c storetest.Call) error { seen.count(c); return nil })
	for _, n := range []int{512, 800} { // the second record has parts, too, and smaller planes
		p := kv.Prompt{Tokens: crashtest.Tokens(n, n)}
		storetest.Put(t, m, p)
		storetest.Expect(t, m, p, n)
	}
	if disk.Before(nil); seen.reads.Load() == 0 || seen.open.Load() != 0 {
		t.Errorf("%d direct reads, %d files are still open", seen.reads.Load(), seen.open.Load())
	}
}
