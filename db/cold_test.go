package db

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// wide has rows of 8 KiB in all.
func wide() kv.Descriptor {
	d := plain()
	d.Name = "wide"
	for i := range d.Tensors {
		d.Tensors[i].Width = 1024
	}
	return d
}

// A restore of what is not in memory reads all of it; what was prefetched is in memory soon.
func TestColdRestore(t *testing.T) {
	o := options()
	o.SegmentBytes = 5 << 20
	dir := t.TempDir()
	s := open(t, dir, o)
	p := kv.Prompt{Tokens: tokens(1, 1500)} // 12 MB
	put(t, model(t, s, wide()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	canCool := cool(t, dir)
	s = open(t, dir, o)
	if expect(t, model(t, s, wide()), p, 1500); !canCool {
		t.Skip("SKIPPED: nothing of this file system ever leaves the memory: only the restore itself was tested")
	}

	resident := func() (n, all int) {
		for x, err := range s.Blocks(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if all++; s.eng.set.Resident(segments.Loc{Segment: x.Segment, Offset: x.Offset, Length: x.Bytes}) {
				n++
			}
		}
		return n, all
	}
	again := func() *Model {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cool(t, dir)
		s = open(t, dir, o)
		return model(t, s, wide())
	}
	m := again()
	if n, all := resident(); n > all/4 {
		t.Fatalf("%d of %d blocks are in memory after they were dropped", n, all)
	}
	if n, err := m.Prefetch(ctx, p, MatchOptions{}); n != 1500 || err != nil {
		t.Fatal(n, err)
	}
	eventually(t, "all blocks in memory after Prefetch", func() bool { n, all := resident(); return n == all })

	m = again()
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.Prefetch(over, p, MatchOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := x.Restore(over, empty(wide(), 1500)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n, all := resident(); n > all/2 {
		t.Errorf("%d of %d blocks were read by calls that were cancelled before", n, all)
	}
	layers := 0
	rows := empty(wide(), 1500)
	got, err := x.RestoreLayers(ctx, rows, func(layer, tokens int) { layers++ })
	if err != nil || got.Tokens != 1500 || layers != 2 {
		t.Errorf("%+v, %v, %d layers", got, err, layers)
	}
	checkRows(t, wide(), &p, rows, 1500)
}
