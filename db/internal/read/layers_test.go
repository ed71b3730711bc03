package read_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// orders are those of a model's tensors, and so of the planes in its records.
var orders = map[string]func(a, b kv.Tensor) int{
	"layer by layer":     func(a, b kv.Tensor) int { return cmp.Compare(a.Layer, b.Layer) },
	"all K before all V": func(a, b kv.Tensor) int { return cmp.Compare(a.Role, b.Role) },
	"last layer first":   func(a, b kv.Tensor) int { return cmp.Compare(b.Layer, a.Layer) },
}

// layered is a model of so many layers.
func layered(layers, width, block int, order func(a, b kv.Tensor) int) kv.Descriptor {
	d := crashtest.Plain()
	x := d.Tensors[0]
	x.Width, d.BlockTokens, d.Tensors = width, block, nil
	for x.Layer = range layers {
		for _, x.Role = range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, x)
		}
	}
	slices.SortStableFunc(d.Tensors, order)
	return d
}

// pageCache is a disk of which is in memory what was asked for, and how many bytes were asked for and read around it.
type pageCache struct {
	*storetest.ColdDisk
	mu            sync.Mutex
	in            map[string]map[int64]bool
	asked, direct int64
}

func newPageCache() *pageCache {
	c := &pageCache{in: map[string]map[int64]bool{}}
	c.ColdDisk = storetest.Cold(func(name string, page int64) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.in[name][page]
	})
	return c
}

// watch begins to count, with nothing in memory.
func (c *pageCache) watch() {
	c.mu.Lock()
	clear(c.in)
	c.mu.Unlock()
	c.count()
	c.Before(func(x storetest.Call) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch x.Kind {
		case "willneed":
			c.asked += x.N
			if c.in[x.Name] == nil {
				c.in[x.Name] = map[int64]bool{}
			}
			for page := x.Off / 4096; page*4096 < x.Off+x.N; page++ {
				c.in[x.Name][page] = true
			}
		case "readdirect":
			c.direct += x.N
		}
		return nil
	})
}

// count returns the bytes since it was called last.
func (c *pageCache) count() (asked, direct int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, direct = c.asked, c.direct
	c.asked, c.direct = 0, 0
	return asked, direct
}

// stored are the bytes of a store's records.
func stored(t *testing.T, s *db.Store) (n int64) {
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		n += b.Bytes
	}
	return n
}

// Before the first layer of a cold restore is ready, little more is asked for than its planes and the heads of the records, wherever in a record
// the planes lie. The others are read around the page cache then, and all of them by a later restore, though the first layer is in memory.
func TestFirstLayerAlone(t *testing.T) {
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			const layers, tokens = 16, 1024
			d := layered(layers, 512, 64, order)
			disk := newPageCache()
			s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
			m := storetest.Model(t, s, d)
			p := kv.Prompt{Tokens: crashtest.Tokens(1, tokens)}
			storetest.Put(t, m, p)
			all := stored(t, s)
			disk.watch()
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
				if asked, direct := disk.count(); asked < all/layers || asked > all/layers+slack || direct != 0 {
					t.Errorf("%d bytes were asked for and %d read around the page cache before the first of %d layers of %d bytes", asked, direct, layers, all)
				}
				firstPlanesAskedFor(t, disk, s, d)
				for i, x := range d.Tensors {
					if right := bytes.Equal(rows[i].Pieces[0].Mem[:x.RowBytes()], storetest.Truth(d, &p, i, 0)); right != (x.Layer == 0) {
						t.Errorf("a row of layer %d is there, %t, when the first layer is ready", x.Layer, right)
					}
				}
			})
			if err != nil || got.Tokens != tokens || next != layers {
				t.Fatalf("%+v, %v, %d layers", got, err, next)
			}
			storetest.CheckRows(t, d, &p, rows, tokens)
			if _, direct := disk.count(); direct < all/layers*(layers-1)*9/10 || direct > all {
				t.Errorf("%d bytes of %d were read around the page cache", direct, all)
			}
			storetest.Expect(t, m, p, tokens)
			if _, direct := disk.count(); direct < all*9/10 {
				t.Errorf("%d bytes of %d were read around the page cache when the first layer was in memory", direct, all)
			}
			storetest.Engine(s).Source.Again.Drop()
			disk.watch()
			disk.Deny(true)
			storetest.Expect(t, m, p, tokens)
			if asked, direct := disk.count(); asked != all || direct != 0 {
				t.Errorf("%d bytes of %d were asked for where nothing is read around the page cache", asked, all)
			}
		})
	}
}

// firstPlanesAskedFor looks for the planes of the first layer in what was asked for.
func firstPlanesAskedFor(t *testing.T, disk *pageCache, s *db.Store, d kv.Descriptor) {
	set := storetest.Engine(s).Segments
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		at := segments.Loc{Segment: b.Segment, Offset: b.Offset, Length: b.Bytes}
		storetest.OK(t, set.Read(at, func(r *segments.Record) error {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			for i := range r.Tensors() {
				te := r.Tensor(i)
				from := b.Offset + int64(te.Offset)
				for page := from / 4096; d.Tensors[te.Tensor].Layer == 0 && page*4096 < from+int64(te.Length); page++ {
					if !disk.in[r.File()][page] {
						t.Errorf("page %d of plane %d was not asked for", page, i)
					}
				}
			}
			return nil
		}))
	}
}

// However small the records, and however few layers they have: nothing is read twice, and what is not in memory not by page faults.
func TestLayersOfSmallModels(t *testing.T) {
	for name, x := range map[string]struct{ layers, width, tokens int }{
		"two layers":         {2, 2048, 1024},
		"records of 16 KiB":  {6, 32, 8192},
		"records of 80 KiB":  {6, 208, 4096},
		"records of 200 KiB": {6, 512, 2048},
	} {
		t.Run(name, func(t *testing.T) {
			d := layered(x.layers, x.width, 16, orders["layer by layer"])
			disk := newPageCache()
			o := storetest.Options()
			o.SegmentBytes = 64 << 20
			s := storetest.OpenOn(t, disk, memdir.Disk(t), o)
			m := storetest.Model(t, s, d)
			p := kv.Prompt{Tokens: crashtest.Tokens(1, x.tokens)}
			storetest.Put(t, m, p)
			all := stored(t, s)
			disk.watch()
			for range 2 {
				f := storetest.Match(t, m, p)
				rows := storetest.Empty(d, x.tokens)
				if got, err := f.RestoreLayers(t.Context(), rows, func(int, int) {}); err != nil || got.Tokens != x.tokens {
					t.Fatal(got, err)
				}
				storetest.CheckRows(t, d, &p, rows, x.tokens)
				storetest.OK(t, f.Close())
				if asked, direct := disk.count(); direct < all*7/10 || asked+direct < all || asked+direct > all*3/2 {
					t.Errorf("of %d bytes %d were asked for, and %d read around the page cache", all, asked, direct)
				}
			}
		})
	}
}

// A record that is damaged, or has a table of other tensors, ends the prefix before any layer of it is ready.
func TestLayersOverDamage(t *testing.T) {
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			const block, planes = 64, 16
			d := layered(planes/2, 512, block, order)
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 2*block+6)}
			sound := memdir.Disk(t)
			s := storetest.Open(t, sound, storetest.Options())
			m := storetest.Model(t, s, d)
			storetest.Put(t, m, p)
			b := storetest.Record(t, s, m, p, 1, 0)
			storetest.OK(t, s.Close())
			restore := func(what string, plane int, dir string) {
				s := storetest.OpenOn(t, storetest.Cold(nil), dir, storetest.Options())
				defer s.Close()
				x := storetest.Must(storetest.Model(t, s, d).Match(t.Context(), p, db.MatchOptions{}))(t)
				defer x.Close()
				rows := storetest.Empty(d, len(p.Tokens))
				last := -1
				got, err := x.RestoreLayers(t.Context(), rows, func(_, tokens int) { last = tokens })
				if err != nil || got.Tokens != block || last != block {
					t.Fatalf("%s of plane %d: %+v, %v; the last layer was ready with %d tokens", what, plane, got, err, last)
				}
				storetest.CheckRows(t, d, &p, rows, got.Tokens)
			}
			for _, plane := range []int{0, 1, 7, 8, 14, 15} {
				for _, tensor := range []int{kv.MaxTensors - 1, planes, planes - 1 - plane} {
					dir := storetest.Copy(t, sound)
					forge(t, dir, b, block, planes, uint16(plane), uint16(tensor))
					restore("another tensor", plane, dir)
				}
				dir := storetest.Copy(t, sound)
				storetest.Flip(t, storetest.SegmentPath(dir, b.Segment), b.Offset+b.Bytes*int64(2*plane+1)/(2*planes), 3, func() { restore("a flipped bit", plane, dir) })
			}
		})
	}
}

// A restore that is cancelled before it begins asks for nothing; one that is cancelled while the first layer is read says of no layer that it is
// ready.
func TestCancelledFirstLayer(t *testing.T) {
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			const tokens = 1500
			d := layered(8, 512, 64, order)
			disk := newPageCache()
			s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
			m := storetest.Model(t, s, d)
			p := kv.Prompt{Tokens: crashtest.Tokens(1, tokens)}
			storetest.Put(t, m, p)
			for at := int64(-1); at < 20; at += 3 {
				ctx, cancel := context.WithCancel(t.Context())
				var asks atomic.Int64
				disk.watch()
				disk.Before(func(c storetest.Call) error {
					if c.Kind == "willneed" && asks.Add(1) > at {
						cancel()
					}
					return nil
				})
				if at < 0 {
					cancel()
				}
				x := storetest.Match(t, m, p)
				_, err := x.RestoreLayers(ctx, storetest.Empty(d, tokens), func(layer, _ int) { t.Errorf("layer %d is ready", layer) })
				if !errors.Is(err, context.Canceled) || at < 0 && asks.Load() > 0 {
					t.Errorf("%v, asked %d times", err, asks.Load())
				}
				cancel()
				storetest.OK(t, x.Close())
			}
		})
	}
}
