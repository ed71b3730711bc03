package page

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// wood makes blocks in the order in which a store lists them: fork says how often a new block goes on from an old one, and not from the last.
func wood(r *rand.Rand, models, n int, fork float64) (list []db.ModelStats, blocks []db.Block) {
	for i := range models {
		list = append(list, db.ModelStats{Fingerprint: kv.Fingerprint{byte(i + 1)}, Descriptor: kv.Descriptor{Name: "model"}, Latest: true})
	}
	blocks = make([]db.Block, 0, n+n/2)
	for i := range n {
		b := db.Block{Tokens: 1 + r.IntN(64), Bytes: 1 + r.Int64N(1<<20), Hits: uint32(r.IntN(3)), Used: time.Unix(60*r.Int64N(1e6), 0)}
		binary.BigEndian.PutUint64(b.Key[:], r.Uint64())
		m := r.IntN(models)
		b.Model = list[m].Fingerprint
		if at := i - 1; at >= 0 && r.Float64() > 0.01 {
			if r.Float64() < fork {
				at = r.IntN(i)
			}
			up := blocks[at]
			b.Parent, b.Model, b.First, b.Scope = up.Key, up.Model, up.First+up.Tokens, up.Scope
			if up.Scope.IsShared() && r.IntN(4) == 0 {
				b.Scope = kv.ScopeID{byte(1 + r.IntN(200))}
			}
			m = int(b.Model[0]) - 1
		} else {
			binary.BigEndian.PutUint64(b.Parent[:], r.Uint64()) // the chain's root
		}
		blocks = append(blocks, b)
		list[m].Blocks++
		list[m].Records++
		list[m].Bytes += b.Bytes
	}
	for _, b := range blocks {
		if r.IntN(4) == 0 { // the rows of another group
			b.Group, b.Bytes = 1, 1+r.Int64N(1<<20)
			blocks = append(blocks, b)
			m := &list[int(b.Model[0])-1]
			m.Records++
			m.Bytes += b.Bytes
		}
	}
	// By key, and then by group, as they were made. Blocks are large: what is sorted are their places.
	type place struct {
		key uint64
		at  int
	}
	order := make([]place, len(blocks))
	for i := range blocks {
		order[i] = place{binary.BigEndian.Uint64(blocks[i].Key[:]), i}
	}
	slices.SortFunc(order, func(a, b place) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at)) })
	sorted := make([]db.Block, len(blocks))
	for i, o := range order {
		sorted[i] = blocks[o.at]
	}
	return list, sorted
}

func listOf(blocks []db.Block) iter.Seq2[db.Block, error] {
	return func(yield func(db.Block, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// judge says whether a tree adds up, and how many nodes it has.
func judge(t interface {
	Helper()
	Errorf(string, ...any)
}, tree Tree, blocks []db.Block) (nodes int) {
	t.Helper()
	var want, got struct{ bytes, blocks, hits, tokens int64 }
	for _, b := range blocks {
		if want.bytes += b.Bytes; b.Group != 0 {
			continue
		}
		want.blocks++
		want.hits += int64(b.Hits)
		want.tokens += int64(b.Tokens)
	}
	var walk func(n *Node, depth int) (runs int64)
	walk = func(n *Node, depth int) int64 {
		nodes++
		if depth > maxDepth {
			t.Errorf("a node at depth %d", depth)
		}
		sum, below := n.Own, int64(n.Blocks)
		for _, k := range n.Kids {
			sum += k.Bytes
			below += walk(k, depth+1)
			if k.Hits > n.Hits {
				t.Errorf("%d hits behind %d", k.Hits, n.Hits)
			}
			if k.Used.After(n.Used) {
				t.Errorf("used later than what it goes on from")
			}
			if n.More == 0 && k.First != n.First+n.Tokens {
				t.Errorf("a node at %d behind [%d, %d)", k.First, n.First, n.First+n.Tokens)
			}
		}
		if sum != n.Bytes {
			t.Errorf("a node of %d bytes has %d", n.Bytes, sum)
		}
		got.tokens += int64(n.Tokens)
		return below
	}
	for _, m := range tree.Models {
		sum, below := int64(0), int64(0)
		for _, k := range m.Kids {
			sum += k.Bytes
			below += walk(k, 0)
		}
		if sum != m.Bytes || below != m.Blocks {
			t.Errorf("a model of %d bytes and %d blocks is drawn with %d and %d", m.Bytes, m.Blocks, sum, below)
		}
		got.bytes += sum
		got.blocks += below
		got.hits += m.Hits
	}
	if got != want || tree.Bytes != want.bytes || tree.Blocks != want.blocks {
		t.Errorf("drawn is %+v (%d bytes, %d blocks in all), stored %+v", got, tree.Bytes, tree.Blocks, want)
	}
	return nodes
}

// mostNodes is what all nodes together are at most: those that were chosen, one that is left over for each, and for each model.
const mostNodes = 2*maxNodes + 2*maxModels

// Whatever is stored, the drawing has all of it, adds up, and is small.
func TestTreeAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		models, blocks := wood(r, rapid.IntRange(1, 5).Draw(t, "models"), rapid.IntRange(0, 3000).Draw(t, "blocks"), rapid.Float64Range(0, 1).Draw(t, "fork"))
		tree, err := draw(t.Context(), models, listOf(blocks), MaxBlocks)
		if err != nil {
			t.Fatal(err)
		}
		if n := judge(t, tree, blocks); n > mostNodes {
			t.Errorf("%d nodes", n)
		}
	})
}

// A million blocks: as prompts that share nothing, as one prompt, as a bush.
func TestTreeOfAMillion(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	for name, fork := range map[string]float64{"chains": 0, "forks": 0.3, "bush": 1} {
		models, blocks := wood(rand.New(rand.NewPCG(1, 2)), 3, n, fork)
		tree, err := draw(t.Context(), models, listOf(blocks), MaxBlocks)
		if err != nil {
			t.Fatal(err)
		}
		nodes := judge(t, tree, blocks)
		if size := len(encode(viewOf(tree, nil))); nodes > mostNodes || size > 400_000 {
			t.Errorf("%s: %d nodes, %d bytes", name, nodes, size)
		} else {
			t.Logf("%s: %d blocks in %v: %d nodes, %d bytes", name, n, tree.Took.Round(time.Millisecond), nodes, size)
		}
	}
}

// Of a store with too many blocks the models are drawn, with the store's own figures.
func TestTooManyBlocks(t *testing.T) {
	models, blocks := wood(rand.New(rand.NewPCG(1, 2)), 2, 1000, 0.5)
	asked := false
	tree, err := draw(t.Context(), models, func(func(db.Block, error) bool) { asked = true }, 999)
	if err != nil || !tree.TooMany || asked || tree.Blocks != 1000 || len(tree.Models) != 2 || tree.Models[0].Kids != nil {
		t.Errorf("%+v, %v; blocks were listed: %t", tree, err, asked)
	}
	for i := range models {
		models[i].Blocks = 0 // they are put while we list
	}
	tree, err = draw(t.Context(), models, listOf(blocks), 999)
	if err != nil || !tree.TooMany || tree.Blocks != 1000 || tree.Models[0].Kids != nil {
		t.Errorf("%d blocks, too many: %t, %v", tree.Blocks, tree.TooMany, err)
	}
}

// What a damaged index says makes no ring and no panic: blocks that are one another's parents, of other models, without tokens.
func TestTreeOfNonsense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		models, blocks := wood(r, 2, 200, 0.5)
		for i := range blocks {
			if r.IntN(3) == 0 {
				blocks[i].Parent = blocks[r.IntN(len(blocks))].Key
				blocks[i].First = r.IntN(64)
				blocks[i].Tokens = r.IntN(3)
				blocks[i].Group = r.IntN(2)
				blocks[i].Model = kv.Fingerprint{byte(r.IntN(4))}
			}
		}
		tree, err := draw(t.Context(), models, listOf(blocks), MaxBlocks)
		if err != nil {
			t.Fatal(err)
		}
		encode(viewOf(tree, nil))
		for _, m := range tree.Models { // nor does it hide anything
			sum := int64(0)
			for _, k := range m.Kids {
				sum += k.Bytes
			}
			if sum != m.Bytes {
				t.Errorf("a model of %d bytes is drawn with %d", m.Bytes, sum)
			}
		}
	})
}
