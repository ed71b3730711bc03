package read_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// directs counts the reads around the page cache, and the files that are open for them.
type directs struct {
	reads, open, most atomic.Int64
}

func (d *directs) count(c storetest.Call) {
	switch c.Kind {
	case "readdirect":
		d.reads.Add(1)
	case "opendirect":
		n := d.open.Add(1)
		for m := d.most.Load(); n > m && !d.most.CompareAndSwap(m, n); m = d.most.Load() {
		}
	case "closedirect":
		d.open.Add(-1)
	}
}

// patches are pages of which about one in so many runs of 64 is in memory; 0: none.
func patches(seed, oneIn uint64) func(name string, page int64) bool {
	return func(name string, page int64) bool {
		h := fnv.New64a()
		fmt.Fprint(h, seed, filepath.Base(name), page/64)
		return oneIn == 0 || h.Sum64()%oneIn != 0
	}
}

// Whatever the model, the places of its records and what of them is in memory: a restore around the page cache gives the rows that one
// through the map gives, at once and by layers, of all and of a part; and it leaves no file open.
func TestDirectRestore(t *testing.T) {
	var all atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		d := drawModel(rt)
		o := storetest.Options()
		o.SegmentBytes = rapid.SampledFrom([]int64{1 << 20, 5 << 20}).Draw(rt, "segment bytes")
		o.Codec = rapid.SampledFrom([]quant.Codec{quant.Raw, quant.Q8_0, quant.Q4R}).Draw(rt, "codec")
		x := drawDirect(t, rt, o, d)
		defer x.s.Close()
		m := x.m
		var seen directs
		x.disk.Before(func(c storetest.Call) error { seen.count(c); return nil })
		p := kv.Prompt{Tokens: crashtest.Tokens(1, rapid.IntRange(100, 1200).Draw(rt, "tokens"))}
		other := kv.Prompt{Tokens: crashtest.Tokens(2, len(p.Tokens))}
		for end := 0; end < len(p.Tokens); { // two prompts, in turns: their records lie among each other's
			end = min(len(p.Tokens), end+rapid.IntRange(50, 1200).Draw(rt, "more"))
			storetest.Put(t, m, kv.Prompt{Tokens: p.Tokens[:end]})
			if rapid.Bool().Draw(rt, "other") {
				storetest.Put(t, m, kv.Prompt{Tokens: other.Tokens[:end]})
			}
		}
		n := len(p.Tokens)
		x.throughTheMap(rt, p)
		if seen.reads.Load() != 0 {
			rt.Fatal("the reference was read around the page cache")
		}
		next := 0
		x.sameRows(rt, func(layer, tokens int) {
			if layer != next || tokens != n {
				rt.Fatalf("layer %d with %d tokens, expected layer %d with %d", layer, tokens, next, n)
			}
			next++
		})
		if seen.open.Load() != 0 {
			rt.Fatalf("%d files are still open", seen.open.Load())
		}
		all.Add(seen.reads.Load())
	})
	if all.Load() == 0 {
		t.Error("nothing was read around the page cache")
	}
}

// A restore from more segments than a process may have files open leaves some of them to the map.
func TestDirectManySegments(t *testing.T) {
	var seen directs
	disk := storetest.Cold(nil)
	disk.Before(func(c storetest.Call) error { seen.count(c); return nil })
	o := storetest.Options()
	o.SegmentBytes = 128 << 10
	s := storetest.OpenOn(t, disk, memdir.Disk(t), o)
	m := storetest.Model(t, s, wide())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 6000)}
	storetest.Put(t, m, p)
	if n := len(storetest.Engine(s).Segments.Segments()); n < 100 {
		t.Fatalf("there are only %d segments", n)
	}
	storetest.Expect(t, m, p, len(p.Tokens))
	if seen.most.Load() != 64 || seen.open.Load() != 0 {
		t.Errorf("%d files were open at once, %d still are", seen.most.Load(), seen.open.Load())
	}
}

// direct is a store with a model of which a part is in memory, and what a restore of p through the map gives, by tensor.
type direct struct {
	disk *storetest.ColdDisk
	s    *db.Store
	m    *db.Model
	p    kv.Prompt
	want [][]byte
}

// drawDirect opens a store with d. The caller closes it.
func drawDirect(t *testing.T, rt *rapid.T, o db.Options, d kv.Descriptor) *direct {
	inMemory := rapid.SampledFrom([]uint64{0, 2, 4}).Draw(rt, "in memory, one of")
	x := &direct{disk: storetest.Cold(patches(rapid.Uint64().Draw(rt, "seed"), inMemory))}
	x.s = storetest.Must(storetest.TryOpen(x.disk, memdir.Disk(t), o))(rt)
	x.m = storetest.Model(t, x.s, d)
	return x
}

// throughTheMap restores p without a read around the page cache.
func (x *direct) throughTheMap(t storetest.TB, p kv.Prompt) {
	x.disk.Deny(true)
	defer x.disk.Deny(false)
	x.p = p
	x.want = restored(t, x.m, p, func(x *db.Match, rows kv.Rows) (db.Restored, error) { return x.Restore(context.Background(), rows) })
}

func (x *direct) same(rt *rapid.T, what string, restore func(x *db.Match, rows kv.Rows) (db.Restored, error)) {
	for i, got := range restored(rt, x.m, x.p, restore) {
		if !bytes.Equal(got, x.want[i]) {
			rt.Fatalf("%s: tensor %d differs from a restore through the map", what, i)
		}
	}
}

// sameRows restores the prompt at once, and by layers, each of which is there when ready is told of it.
func (x *direct) sameRows(rt *rapid.T, ready func(layer, tokens int)) {
	x.same(rt, "at once", func(m *db.Match, rows kv.Rows) (db.Restored, error) { return m.Restore(context.Background(), rows) })
	x.same(rt, "by layers", func(m *db.Match, rows kv.Rows) (db.Restored, error) {
		return m.RestoreLayers(context.Background(), rows, func(layer, tokens int) {
			ready(layer, tokens)
			for i, tensor := range x.m.Descriptor().Tensors {
				if tensor.Layer <= layer && !bytes.Equal(rows[i].Pieces[0].Mem, x.want[i]) {
					rt.Fatalf("tensor %d is not there when layer %d is ready", i, layer)
				}
			}
		})
	})
}

// restored are the bytes of each tensor after a restore of all of p.
func restored(t storetest.TB, m *db.Model, p kv.Prompt, restore func(x *db.Match, rows kv.Rows) (db.Restored, error)) (mem [][]byte) {
	x := storetest.Must(m.Match(context.Background(), p, db.MatchOptions{}))(t)
	defer x.Close()
	rows := storetest.Empty(m.Descriptor(), len(p.Tokens))
	got, err := restore(x, rows)
	if err != nil || got.Tokens != len(p.Tokens) {
		t.Fatal(got, err)
	}
	for _, r := range rows {
		mem = append(mem, r.Pieces[0].Mem)
	}
	return mem
}

// drawModel is a model with layers in any order, with a window or without, of blocks whose records are short or long.
func drawModel(t *rapid.T) kv.Descriptor {
	d := crashtest.Plain()
	window := rapid.SampledFrom([]int{0, 40, 300}).Draw(t, "window")
	if window > 0 {
		d = crashtest.Windowed(window)
	}
	d.BlockTokens = rapid.SampledFrom([]int{16, 64, 512}).Draw(t, "block")
	x := d.Tensors[0]
	x.Width = rapid.SampledFrom([]int{32, 256, 1024}).Draw(t, "width")
	d.Tensors = nil
	for layer := range rapid.IntRange(1, 6).Draw(t, "layers") {
		x.Layer, x.Group = layer, 0
		if window > 0 && rapid.Bool().Draw(t, "layer of the window") {
			x.Group = 1
		}
		for _, x.Role = range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, x)
		}
	}
	if rapid.Bool().Draw(t, "all K before all V") {
		slices.SortStableFunc(d.Tensors, func(a, b kv.Tensor) int { return cmp.Compare(a.Role, b.Role) })
	}
	return d
}

// Several cold restores at a time, one that is cancelled, and the store made small meanwhile: two have memory, the others do without, and
// nothing is left.
func TestDirectTogether(t *testing.T) {
	var seen directs
	disk := storetest.Cold(nil)
	disk.Before(func(c storetest.Call) error { seen.count(c); return nil })
	s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
	m := storetest.Model(t, s, wide())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 1500)}
	storetest.Put(t, m, p)
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			for range 3 {
				switch i {
				case 4:
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					x, err := m.Match(ctx, p, db.MatchOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					_, err = x.RestoreLayers(ctx, storetest.Empty(wide(), 1500), func(layer, tokens int) { cancel() })
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					x.Close()
				case 5:
					if _, err := s.Pressure(t.Context(), db.Low); err != nil {
						t.Error(err)
					}
				default:
					storetest.Expect(t, m, p, 1500)
				}
			}
		})
	}
	wait.Wait()
	if seen.reads.Load() == 0 || seen.open.Load() != 0 {
		t.Errorf("%d direct reads, %d files are still open", seen.reads.Load(), seen.open.Load())
	}
	ring := storetest.Engine(s).Source.Ring
	if _, err := s.Pressure(t.Context(), db.Low); err != nil || ring.Held() != 0 {
		t.Errorf("%v; the ring holds %d bytes after Pressure", err, ring.Held())
	}
	storetest.Expect(t, m, p, 1500)
	if ring.Held() == 0 {
		t.Error("the ring was not used after Pressure")
	}
	if err := s.Suspend(t.Context()); err != nil || ring.Held() != 0 {
		t.Errorf("%v; the ring holds %d bytes after Suspend", err, ring.Held())
	}
}

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

// A plane as large as the ring has not room in it, since it begins in the middle of a page: its record, and no other one, is read through the map.
func TestDirectPlaneAsLargeAsTheRing(t *testing.T) {
	for name, layer := range map[string]int{"its layer is the last": 1, "there is one layer": 0} {
		t.Run(name, func(t *testing.T) { directLargePlane(t, layer) })
	}
}

func directLargePlane(t *testing.T, layer int) {
	d := crashtest.Toy(kv.Descriptor{Name: "large", BlockTokens: 512, Tensors: []kv.Tensor{
		{Role: kv.RoleK, DType: kv.F16, Width: 1024}, {Role: kv.RoleV, DType: kv.F16, Width: 8192, Layer: layer}, // 1 and 8 MiB
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
		x, rows, told := storetest.Match(t, m, p), storetest.Empty(d, n), 0
		got, err := x.RestoreLayers(t.Context(), rows, func(int, int) { told++ })
		if err != nil || got.Tokens != n || told != layer+1 {
			t.Errorf("%+v, %v, told of %d layers", got, err, told)
		}
		storetest.CheckRows(t, d, &p, rows, n)
		storetest.OK(t, x.Close())
		if n == 512 && seen.reads.Load() > 0 {
			t.Errorf("%d reads around the page cache of a record that is read through the map", seen.reads.Load())
		}
	}
	if disk.Before(nil); seen.reads.Load() == 0 || seen.open.Load() != 0 {
		t.Errorf("%d direct reads, %d files are still open", seen.reads.Load(), seen.open.Load())
	}
}
