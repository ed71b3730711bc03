package read_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// wide has rows of 8 KiB in all.
func wide() kv.Descriptor {
	d := crashtest.Plain()
	d.Name = "wide"
	for i := range d.Tensors {
		d.Tensors[i].Width = 1024
	}
	return d
}

// A restore of what is not in memory reads all of it; what was prefetched is in memory soon.
func TestColdRestore(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 5 << 20
	dir := memdir.Disk(t)
	s := storetest.Open(t, dir, o)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 1500)} // 12 MB
	storetest.Put(t, storetest.Model(t, s, wide()), p)
	storetest.OK(t, s.Close())
	canCool := cool(t, dir)
	s = storetest.Open(t, dir, o)
	if storetest.Expect(t, storetest.Model(t, s, wide()), p, 1500); !canCool {
		t.Skip("SKIPPED: nothing of this file system ever leaves the memory: only the restore itself was tested")
	}

	inMemory := func() (n, all int) {
		for x, err := range s.Blocks(t.Context()) {
			storetest.OK(t, err)
			if all++; resident(t, dir, x) {
				n++
			}
		}
		return n, all
	}
	again := func() *db.Model {
		storetest.OK(t, s.Close())
		cool(t, dir)
		s = storetest.Open(t, dir, o)
		return storetest.Model(t, s, wide())
	}
	m := again()
	if n, all := inMemory(); n > all/4 {
		t.Fatalf("%d of %d blocks are in memory after they were dropped", n, all)
	}
	if n, err := m.Prefetch(t.Context(), p, db.MatchOptions{}); n != 1500 || err != nil {
		t.Fatal(n, err)
	}
	storetest.Eventually(t, "all blocks in memory after Prefetch", func() bool { n, all := inMemory(); return n == all })

	m = again()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Prefetch(over, p, db.MatchOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	x := storetest.Match(t, m, p)
	defer x.Close()
	if _, err := x.Restore(over, storetest.Empty(wide(), 1500)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n, all := inMemory(); n > all/2 {
		t.Errorf("%d of %d blocks were read by calls that were cancelled before", n, all)
	}
	layers := 0
	rows := storetest.Empty(wide(), 1500)
	got, err := x.RestoreLayers(t.Context(), rows, func(layer, tokens int) { layers++ })
	if err != nil || got.Tokens != 1500 || layers != 2 {
		t.Errorf("%+v, %v, %d layers", got, err, layers)
	}
	storetest.CheckRows(t, wide(), &p, rows, 1500)
}
