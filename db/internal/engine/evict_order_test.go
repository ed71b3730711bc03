package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
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
	if n := storetest.Engine(s).Inside().LeafWalks(); n > blocks+full {
		t.Errorf("%d blocks went, and the leaves of models were walked over %d times", blocks, n)
	}
}
