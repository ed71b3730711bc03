package engine_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// naive is the order of eviction, block by block, of a store in which nobody else does anything.
type naive struct {
	e        *engine.Engine
	blocks   map[kv.Key]index.Entry
	children map[kv.Key]int
	latest   map[kv.Fingerprint]bool
}

func newNaive(t *testing.T, e *engine.Engine) *naive {
	n := &naive{e: e, blocks: map[kv.Key]index.Entry{}, children: map[kv.Key]int{}, latest: e.Catalog.Latest()}
	v := e.View()
	defer v.Release()
	storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if x.Group == 0 {
			n.blocks[x.Key] = x
			n.children[x.Parent]++
		}
		return true
	}))
	return n
}

// may reports whether a block may go now.
func (n *naive) may(x index.Entry) bool {
	return n.children[x.Key] == 0 && n.e.Catalog.Class(x.Key) != catalog.ClassPinned && !n.e.Pins.Pinned(x.Key)
}

// colder reports whether x has to go before y.
func (n *naive) colder(x, y index.Entry) bool {
	if old := !n.latest[x.Model]; old == n.latest[y.Model] {
		return old
	}
	return x.Rank < y.Rank
}

// remove takes a block out, if it is among those that have to go next.
func (n *naive) remove(t *testing.T, x index.Entry) {
	t.Helper()
	if !n.may(x) {
		t.Fatalf("%s was evicted, and may not go", x.Key)
	}
	for _, y := range n.blocks {
		if n.may(y) && n.colder(y, x) {
			t.Fatalf("%s of rank %x went before %s of rank %x", x.Key, x.Rank, y.Key, y.Rank)
		}
	}
	delete(n.blocks, x.Key)
	n.children[x.Parent]--
	if parent, ok := n.blocks[x.Parent]; ok && n.children[x.Parent] == 0 {
		parent.Rank = n.e.Catalog.Rank(parent.Key, max(parent.Rank, x.Rank))
		n.blocks[x.Parent] = parent
	}
}

// Blocks of several models go in the order that a naive choice gives, within a frame, too: versions of a model, priorities, pinned refs, open
// matches, and parents that become leaves between them.
func TestEvictionOrderOfSeveralModels(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 5))
		o := storetest.Options()
		o.HighWater, o.LowWater = 1, 1
		o.Policy = []db.Policy{db.LRU(), db.FIFO(), db.DepthCap(64), db.CostAware()}[seed%4]
		s := storetest.Open(t, t.TempDir(), o)
		e := storetest.Engine(s)
		var models []*db.Model
		for i := range 7 {
			d := numbered(i)
			if i >= 4 {
				d.Name = numbered(i - 4).Name // a newer version
			}
			models = append(models, storetest.Model(t, s, d))
		}
		models = append(models[:2], models[3:]...) // one has no block
		for i := range 120 {
			m := models[rng.IntN(len(models))]
			p := kv.Prompt{Tokens: append(crashtest.Tokens(rng.IntN(3), 16*rng.IntN(3)), crashtest.Tokens(10+i, 16*(1+rng.IntN(5)))...)}
			storetest.Put(t, m, p)
			switch rng.IntN(8) {
			case 0:
				storetest.OK(t, m.SetRef(t.Context(), string(rune('a'+i)), p, db.RefOptions{Priority: uint8(1 + rng.IntN(3))}))
			case 1:
				storetest.OK(t, m.SetRef(t.Context(), string(rune('a'+i)), p, db.RefOptions{Pinned: true}))
			case 2:
				defer storetest.Match(t, m, p).Close()
			case 3:
				p.Tokens = p.Tokens[:16]
				storetest.OK(t, storetest.Match(t, m, p).Close()) // a use of what is no leaf
			}
		}
		storetest.OK(t, s.Checkpoint(t.Context()))
		n := newNaive(t, e)
		at := map[index.Loc]kv.Key{}
		for _, x := range n.blocks {
			at[x.Loc] = x.Key
		}
		gone := 0
		for _, frame := range []int{1, 40, 100, 1000} {
			evicted := storetest.Must(e.Inside().EvictBlocks(frame))(t)
			dead := e.Catalog.Take()
			defer e.Catalog.GiveBack(dead)
			if len(dead.Unseen) != evicted {
				t.Fatalf("%d blocks were evicted, %d records died", evicted, len(dead.Unseen))
			}
			for _, loc := range dead.Unseen {
				n.remove(t, n.blocks[at[loc]])
			}
			gone += evicted
		}
		for _, x := range n.blocks {
			if n.may(x) {
				t.Errorf("seed %d: %s may go, and is left", seed, x.Key)
			}
		}
		if gone < 200 || len(n.blocks) == 0 {
			t.Errorf("seed %d: %d blocks went, %d are left: this test shows little", seed, gone, len(n.blocks))
		}
	}
}

// An eviction goes through the leaves of a model once for each of its blocks that go, and once for each frame, and leaves alone the models that
// have no blocks.
func TestEvictionAsksModelsOnce(t *testing.T) {
	o := storetest.Options()
	o.HighWater, o.LowWater = 1, 1
	s := storetest.Open(t, t.TempDir(), o)
	const full, empty, prompts = 10, 30, 10
	for i := range full + empty {
		m := storetest.Model(t, s, numbered(i))
		for k := range prompts {
			if i < full {
				storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(k, 32)})
			}
		}
	}
	const blocks = full * prompts * 2
	if n, err := storetest.Engine(s).Inside().EvictBlocks(blocks); err != nil || n != blocks {
		t.Fatalf("%d blocks were evicted, %v", n, err)
	}
	if n := storetest.Engine(s).Evictor.Walked.Load(); n > blocks+full {
		t.Errorf("%d blocks went, and the leaves of models were walked over %d times", blocks, n)
	}
}

// longBlocks is a store of a model whose records take a while to be written.
func longBlocks(t *testing.T) (*db.Store, *db.Model) {
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	d := crashtest.Hybrid()
	d.BlockTokens = 512
	for i := range d.Tensors {
		if d.Tensors[i].Width > 0 {
			d.Tensors[i].Width = 2048
		}
	}
	return storetest.Fresh(t, o, d)
}

// A put goes on from rows of another prompt's block that are evicted meanwhile: it has them, or says that they are gone.
func TestFirstRowsAreEvicted(t *testing.T) {
	s, m := longBlocks(t)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 300)}
	all := storetest.Filled(m.Descriptor(), &p, 0, 300)
	q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:250], crashtest.Tokens(2, 50))}
	some := storetest.Filled(m.Descriptor(), &q, 250, 300)
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	e := storetest.Engine(s)
	counts := map[string]int{}
	for stop := time.Now().Add(time.Second); time.Now().Before(stop); {
		storetest.Must(m.Put(t.Context(), p, all, db.PutOptions{}))(t)
		done := make(chan error)
		go func() {
			_, err := m.Put(t.Context(), q, some, db.PutOptions{})
			done <- err
		}()
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
		storetest.Must(e.Inside().EvictBlocks(2))(t)
		storetest.OK(t, e.Checkpoints.Reclaim(t.Context()))
		err := <-done
		var missing *db.NotStoredError
		switch {
		case err == nil:
			counts["stored"]++
		case errors.As(err, &missing):
			counts[missing.Reason.Code.String()]++
			if missing.Reason.Code == db.Damaged {
				t.Fatalf("after %v: %v", counts, err)
			}
		default:
			t.Fatal(err)
		}
		storetest.Must(e.Inside().EvictBlocks(4))(t)
		storetest.OK(t, e.Checkpoints.Reclaim(t.Context()))
	}
	t.Log(counts)
}

// Nor does a move take them away.
func TestFirstRowsAreMoved(t *testing.T) {
	s, m := longBlocks(t)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 300)}
	storetest.Must(m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 300), db.PutOptions{}))(t)
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for i, stop := 2, time.Now().Add(time.Second); time.Now().Before(stop); i++ {
		q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:250], crashtest.Tokens(i, 50))}
		some := storetest.Filled(m.Descriptor(), &q, 250, 300)
		storetest.OK(t, storetest.Engine(s).Segments.SealAll())
		done := make(chan error)
		go func() {
			_, err := s.Compact(t.Context(), db.CompactOptions{All: true})
			done <- err
		}()
		time.Sleep(time.Duration(r.IntN(8000)) * time.Microsecond)
		_, err := m.Put(t.Context(), q, some, db.PutOptions{})
		if err != nil {
			t.Fatalf("put %d beside a compaction: %v", i, err)
		}
		storetest.OK(t, <-done)
		storetest.Must(m.Delete(t.Context(), q.Prefix(280)))(t)
	}
}

// What the segments of many models have reserved ahead of a small prompt each goes back before anything is evicted for a long one.
func TestManyModelsReserveNothingThatOthersNeed(t *testing.T) {
	o := putsEvict(64<<20, 4<<20)
	s := storetest.Open(t, t.TempDir(), o)
	small := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	const models = 80 // a step ahead of each would be more than the budget
	for i := range models {
		storetest.Put(t, storetest.Model(t, s, numbered(i)), small)
	}
	long := kv.Prompt{Tokens: crashtest.Tokens(2, 16*3000)} // 24 MB
	storetest.Put(t, storetest.Model(t, s, numbered(models)), long)
	if st := storetest.Stats(t, s); st.Evicted != 0 {
		t.Errorf("%d blocks were evicted, and %d bytes are alive of %d", st.Evicted, st.LiveBytes, o.Budget)
	}
	for i := range models { // each goes on in the segment that it has
		m := storetest.Model(t, s, numbered(i))
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 64)})
		storetest.Expect(t, m, small, 64)
	}
	segments := map[kv.Fingerprint]int{}
	for _, info := range storetest.Engine(s).Segments.Segments() {
		segments[info.Model]++
	}
	for i := range models {
		d := numbered(i)
		normal := storetest.Must(d.Normal())(t)
		if n := segments[normal.Fingerprint()]; n != 1 {
			t.Errorf("model %d has %d segments", i, n)
		}
	}
	storetest.Sound(t, s)
	if used := storetest.Engine(s).Budget.Measure(); used > o.Budget {
		t.Errorf("%d bytes are used of %d", used, o.Budget)
	}
}

// A store that has as many blocks as it may, and disk enough, does not give back for each put what its segment has reserved ahead, to reserve it
// anew.
func TestFullOfBlocksKeepsWhatItReservedAhead(t *testing.T) {
	o := putsEvict(1<<30, 64<<20)
	o.MaxBlocks = 100
	var full atomic.Bool
	var steps atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if full.Load() && (c.Kind == "allocate" || c.Kind == "punch") && strings.HasSuffix(c.Name, ".seg") && c.N >= 1<<20 {
			steps.Add(1)
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, memdir.Disk(t), o)
	m := storetest.Model(t, s, crashtest.Plain())
	const puts = 200 // of 4 KiB each
	for i := range 100 + puts {
		full.Store(i >= 100)
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 16)})
	}
	if st := storetest.Stats(t, s); st.Evicted < puts || steps.Load() > 2 {
		t.Errorf("%d blocks were evicted; a step of disk blocks was reserved or given back %d times", st.Evicted, steps.Load())
	}
	storetest.Sound(t, s)
}

// DepthCap drops the far end of a long session before anything else, however late that was used, and keeps every beginning.
func TestDepthCapKeepsBeginnings(t *testing.T) {
	o := storetest.Options()
	o.Policy = db.DepthCap(64)
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	short, long := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 160)}
	storetest.Put(t, m, short)
	storetest.Put(t, m, long)
	storetest.Expect(t, m, long, 160) // used last
	for left := 144; left >= 64; left -= 16 {
		if n, err := storetest.Engine(s).Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatalf("%d blocks were evicted, %v", n, err)
		}
		storetest.Expect(t, m, long, left)
	}
	storetest.Expect(t, m, short, 64)
	if n, err := storetest.Engine(s).Inside().EvictBlocks(1); err != nil || n != 1 { // among equals the one that was used first
		t.Fatalf("%d blocks were evicted, %v", n, err)
	}
	storetest.Expect(t, m, long, 48)
	storetest.Expect(t, m, short, 64)
}

// A block that becomes a leaf when its child goes, and has a lower priority than that had, goes before other leaves of the child's priority.
func TestColdParentGoesNext(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	pair, other := kv.Tokens(crashtest.Tokens(1, 32)...), kv.Tokens(crashtest.Tokens(2, 16)...)
	for name, p := range map[string]kv.Prompt{"pair": pair, "other": other} {
		storetest.Put(t, m, p)
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Priority: 2}))
	}
	storetest.Expect(t, m, pair, 32)
	storetest.Expect(t, m, other, 16) // used last
	n := storetest.Must(storetest.Engine(s).Inside().EvictBlocks(2))(t)
	storetest.Expect(t, m, pair, 0)
	storetest.Expect(t, m, other, 16)
	if n != 2 {
		t.Errorf("%d blocks were evicted", n)
	}
}
