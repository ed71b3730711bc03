//go:build unix

package damage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// cutting is a store whose files somebody cuts while eight goroutines work with it.
type cutting struct {
	t      *testing.T
	s      *db.Store
	dir    string
	kept   []*chat // pinned: what is not damaged of them must be there
	stop   atomic.Bool
	moving sync.RWMutex // read-held while records move

	mu    sync.Mutex
	hurt  map[kv.Key]bool  // blocks with a record that lost bytes
	cut   map[string]int64 // the least that was left of a segment's file
	done  map[string]int   // operations
	odd   map[string]int   // errors
	wrong []string
}

// newCutting fills a store: many segments, a part of them sealed.
func newCutting(t *testing.T) *cutting {
	c := &cutting{t: t, dir: filepath.Join(memdir.Dir(t), "store"), hurt: map[kv.Key]bool{}, cut: map[string]int64{}, done: map[string]int{}, odd: map[string]int{}}
	o := options()
	o.Budget = 64 << 20
	o.CheckpointInterval = 50 * time.Millisecond // the background worker has its part
	var err error
	if c.s, err = db.Open(ctx, c.dir, o); err != nil {
		t.Fatal(err)
	}
	ks := kinds()
	for i := range 24 {
		name := []string{"int8", "window", "s2", "huff"}[i%4]
		x := &chat{name: fmt.Sprintf("%s %d", name, i), kind: ks[name], p: kv.Prompt{Tokens: tokens(1000+i, 70+i)}}
		x.rows, x.memo = x.compute(len(x.p.Tokens)), x.memory()
		m, err := c.s.Register(ctx, x.d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Put(ctx, x.p, x.rows, x.put); err != nil {
			t.Fatal(err)
		}
		x.learn(t, m.Model)
		if err := m.SetRef(ctx, x.name, x.p, db.RefOptions{Pinned: true}); err != nil {
			t.Fatal(err)
		}
		x.want, x.rests = len(x.p.Tokens), map[int][]use{}
		if err := x.lookUp(m.Model, x.want); err != nil {
			t.Fatal(err)
		}
		c.kept = append(c.kept, x)
		if i%8 == 7 && i < 20 {
			if err := errors.Join(c.s.Suspend(ctx), c.s.Resume(ctx)); err != nil { // new segments from here on
				t.Fatal(err)
			}
		}
	}
	return c
}

// count notes an operation and its error.
func (c *cutting) count(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[what]++
	c.metLocked(what, err)
}

// metLocked notes an error. The caller holds c.mu.
func (c *cutting) metLocked(what string, err error) {
	if err == nil {
		return
	}
	switch msg := strings.ReplaceAll(err.Error(), c.dir, ""); {
	case strings.Contains(msg, "index.db") && !errors.Is(err, db.ErrForeign):
		c.odd[what+": the index is damaged"]++
	case errors.Is(err, db.ErrCorrupt):
		c.odd[what+": a segment is damaged"]++
	default:
		c.odd[what+": "+strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return 'N'
			}
			return r
		}, msg[:min(len(msg), 200)])]++
	}
}

func (c *cutting) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// note marks the blocks that lie where a file was cut off.
func (c *cutting) note(blocks []db.Block) {
	for _, b := range blocks {
		if to, ok := c.cut[fmt.Sprintf("%016x.seg", b.Segment)]; ok && b.Offset+b.Bytes > to {
			c.hurt[b.Key] = true
		}
	}
}

// operations waits until some more were done.
func (c *cutting) operations(n int) {
	count := func() (sum int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range c.done {
			sum += n
		}
		return sum
	}
	for end := count() + n; count() < end; {
		time.Sleep(time.Millisecond)
	}
}

// list returns what is stored, as soon as the index can say so.
func (c *cutting) list() (out []db.Block) {
	for {
		out = out[:0]
		var bad error
		for b, err := range c.s.Blocks(ctx) {
			if bad = err; err == nil {
				out = append(out, b)
			}
		}
		switch {
		case bad == nil:
			return slices.Clone(out)
		case errors.Is(bad, db.ErrSuspended): // index.db was cut again while it was rebuilt
			c.count("resume", c.s.Resume(ctx))
		default:
			c.mu.Lock()
			c.metLocked("list", bad)
			c.mu.Unlock()
		}
		time.Sleep(time.Millisecond) // the index is being rebuilt
	}
}

// pick chooses a file.
func (c *cutting) pick(rnd *rand.Rand, file string) (name string, size int64) {
	name = filepath.Join(c.dir, file)
	if file == "segments" {
		segs, err := filepath.Glob(filepath.Join(name, "*.seg"))
		if err != nil || len(segs) == 0 {
			return "", 0
		}
		name = segs[rnd.IntN(len(segs))]
	}
	info, err := os.Stat(name)
	if err != nil || info.Size() == 0 {
		return "", 0
	}
	return name, info.Size()
}

// operation does one thing that users or the store itself do.
func (c *cutting) operation(g int, r *rand.Rand) {
	x := *c.kept[r.IntN(len(c.kept))]
	x.memo = x.memory()
	m, err := c.s.Register(ctx, x.d)
	if err != nil {
		c.count("model", err)
		return
	}
	filler := kv.Prompt{Tokens: tokens(g*100+r.IntN(20)+5000, 40)}
	switch r.IntN(16) {
	case 0, 1, 2, 3, 4:
		n, _, err := x.restore(m.Model)
		if bad := x.compare(n); err == nil && bad != "" {
			c.fail("%s", bad)
		}
		c.count("restore", err)
	case 5, 6:
		y, err := m.Match(ctx, x.p, db.MatchOptions{})
		if err != nil {
			c.count("match", err)
			return
		}
		sum := byte(0)
		err = y.View(ctx, func(p db.StoredPlane) error {
			for _, b := range p.Bytes {
				sum ^= b
			}
			return nil
		})
		c.count("view", err)
		y.Close()
	case 7:
		_, err := admin.VerifyStore(ctx, c.s, admin.VerifyOptions{})
		c.count("verify", err)
	case 8:
		c.moving.RLock()
		_, err := c.s.Compact(ctx, db.CompactOptions{All: true})
		c.moving.RUnlock()
		c.count("compact", err)
	case 9:
		_, err := c.s.Shrink(ctx, 1<<20)
		c.count("shrink", err)
	case 10:
		c.count("checkpoint", c.s.Checkpoint(ctx))
	case 11, 12:
		f := &chat{kind: x.kind, p: filler}
		_, err := m.Put(ctx, f.p, f.compute(len(f.p.Tokens)), x.put)
		c.count("put", err)
	case 13:
		_, err := m.Delete(ctx, filler)
		c.count("delete", err)
	case 14:
		for b, err := range c.s.Blocks(ctx) {
			if err != nil {
				c.count("blocks", err)
				return
			}
			if r.IntN(8) == 0 {
				_, err := db.Collect(admin.Planes(ctx, c.s, b))
				c.count("planes", err)
			}
		}
		_, err := m.Prefetch(ctx, x.p, db.MatchOptions{})
		c.count("prefetch", err)
	case 15:
		_, err := c.s.Pressure(ctx, db.Moderate)
		c.count("trim", err)
	}
}

// work runs the goroutines and cuts files under them.
func (c *cutting) work(rnd *rand.Rand, files []string, cuts map[string]int) {
	var wait sync.WaitGroup
	for g := range 8 {
		r := rand.New(rand.NewPCG(rnd.Uint64(), uint64(g)))
		wait.Go(func() {
			for !c.stop.Load() {
				c.operation(g, r)
			}
		})
	}
	for range 6 {
		file := files[rnd.IntN(len(files))]
		c.operations(rnd.IntN(20))
		before := c.list() // some operations happen meanwhile
		name, size := c.pick(rnd, file)
		if name == "" {
			continue
		}
		to := rnd.Int64N(size)
		if rnd.IntN(2) == 0 {
			to = to / pageBytes * pageBytes
		}
		if err := os.Truncate(name, to); err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				c.fail("truncate: %v", err)
			}
			continue
		}
		cuts[file]++
		if old, ok := c.cut[filepath.Base(name)]; !ok || to < old {
			c.cut[filepath.Base(name)] = to
		}
		if c.note(before); file == "segments" {
			c.moving.Lock() // what was copied there before the cut has its new place in the index now
			c.note(c.list())
			c.moving.Unlock()
		}
	}
	c.operations(20)
	c.stop.Store(true)
	wait.Wait()
	c.note(c.list())
}

// after looks at what is left, in the running store and in the one that is opened again.
func (c *cutting) after() (intact int) {
	o := options()
	o.Budget = 64 << 20
	for _, when := range []string{"in the same store", "opened again"} {
		intact = 0
		for _, x := range c.kept {
			hit := slices.ContainsFunc(x.rests[x.want], func(u use) bool { return c.hurt[u.block] })
			u := &user{cost: &cost{index: true}}
			var n int
			var reason db.Reason
			var err error
			whole := func() bool {
				var m db.Registered
				if m, err = c.s.Register(ctx, x.d); err != nil {
					return false
				}
				if n, reason, err = x.restore(m.Model); err != nil {
					return false
				}
				if bad := x.compare(n); bad != "" {
					c.fail("%s: %s", when, bad)
				}
				return n == x.want
			}
			if hit {
				whole()
			} else if !u.again(whole) {
				c.fail("%s: %s was not hit: %d of %d tokens (%v), %v", when, x.name, n, x.want, reason, err)
			} else {
				intact++
			}
		}
		f := &chat{kind: c.kept[0].kind, p: kv.Prompt{Tokens: tokens(9000+len(when), 50)}}
		m, err := c.s.Register(ctx, f.d)
		if err != nil {
			c.fail("%s: %v", when, err)
		} else if got, err := m.Put(ctx, f.p, f.compute(50), f.put); err != nil || got.Tokens != 50 {
			c.fail("%s: put of something new: %+v, %v", when, got, err)
		}
		if err := c.s.Checkpoint(ctx); err != nil {
			c.fail("%s: checkpoint: %v", when, err)
		}
		if err := c.s.Close(); err != nil {
			c.fail("%s: close: %v", when, err)
		}
		if when == "opened again" {
			break
		}
		if c.s, err = db.Open(ctx, c.dir, o); err != nil {
			c.fail("open again: %v", err)
			break
		}
	}
	return intact
}
