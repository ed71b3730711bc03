package page

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
)

// MaxBlocks is how many blocks a drawing looks at. Of a store with more, models are drawn, and what is in them is not.
const MaxBlocks = 2 << 20

// Tree is what a store holds, cut to what can be looked at. All widths add up: Bytes is that of all nodes in it.
type Tree struct {
	At       time.Time
	Bytes    int64 // of all records
	Blocks   int64
	Records  int64
	Damaged  int64 // records that are known to be damaged
	Models   []ModelTree
	TooMany  bool // more than MaxBlocks: the models have no nodes
	Took     time.Duration
	Scopes   int   // that own blocks
	Shared   int64 // bytes that belong to no scope
	LastUsed time.Time
}

// ModelTree is one model's part of it. Its blocks are of group 0; bytes and records are of all groups.
type ModelTree struct {
	Fingerprint kv.Fingerprint
	Name        string
	Latest      bool
	Unreadable  bool // its descriptor
	Blocks      int64
	Records     int64
	Bytes       int64
	Tokens      int64 // of all its blocks
	Hits        int64 // matches that ended in a block that is stored
	Used        time.Time
	Kids        []*Node
}

// Node is a run of blocks without a fork, or, if More is not 0, several small runs beside one another with all behind them.
type Node struct {
	ID     string // of the first block: the beginning of its key; of More: that of the parent, and a plus
	First  int    // position of the first token
	Tokens int    // of the run, or, with More, of all of it
	Blocks int
	Own    int64 // bytes of the run
	Bytes  int64 // with all that is behind it
	Hits   int64 // matches that used its first block: that ended in the run or behind it
	Used   time.Time
	Scope  string // whose it is: the beginning of a hash; empty: shared
	More   int    // how many runs are drawn as this one
	Kids   []*Node

	depth int
	from  []int32 // what kids are made of
}

// rec is one block while a tree is made.
type rec struct {
	key, parent   uint64 // the first bytes: enough for a drawing
	own, bytes    int64
	first, tokens uint32
	used          uint32 // minutes
	hits          uint32 // with those behind it
	kid, next     int32  // first kid, next one of the same parent; -1: none
	scope         int32  // -1: shared
	model         uint16
}

// Draw makes the tree of an open store. Puts and evictions that go on meanwhile may be in it or not.
func Draw(ctx context.Context, s *db.Store) (Tree, error) {
	models, err := db.Collect(s.Models())
	if err != nil {
		return Tree{}, err
	}
	return draw(ctx, models, s.Blocks(ctx), MaxBlocks)
}

func draw(ctx context.Context, models []db.ModelStats, blocks iter.Seq2[db.Block, error], most int64) (Tree, error) {
	began := time.Now()
	t := Tree{At: began}
	f := &forest{number: map[kv.Fingerprint]uint16{}, scopes: map[kv.ScopeID]int32{}}
	for i, m := range models {
		f.number[m.Fingerprint] = uint16(i)
		t.Models = append(t.Models, ModelTree{
			Fingerprint: m.Fingerprint, Name: figures.Name(m.Descriptor.Name), Latest: m.Latest, Unreadable: m.Err != nil,
			Blocks: m.Blocks, Records: m.Records, Bytes: m.Bytes,
		})
		t.Bytes += m.Bytes
		t.Blocks += m.Blocks
		t.Records += m.Records
	}
	if t.TooMany = t.Blocks > most; t.TooMany {
		t.Took = time.Since(began)
		return t, nil
	}
	f.recs = make([]rec, 0, t.Blocks+t.Blocks/16+16)
	if err := f.read(ctx, &t, blocks, most); err != nil {
		return t, err
	}
	if !t.TooMany {
		f.plant(&t)
		f.cut(&t)
	}
	slices.SortStableFunc(t.Models, func(a, b ModelTree) int { return cmp.Compare(b.Bytes, a.Bytes) })
	t.Took = time.Since(began)
	return t, nil
}

// forest is all blocks of a store, by key, as the store lists them.
type forest struct {
	recs   []rec
	number map[kv.Fingerprint]uint16
	scopes map[kv.ScopeID]int32
	names  []string // of scopes
	roots  [][]int32
}

// read takes the blocks in, and counts them anew: the models' own figures may be of another moment.
func (f *forest) read(ctx context.Context, t *Tree, blocks iter.Seq2[db.Block, error], most int64) error {
	t.Bytes, t.Blocks, t.Records = 0, 0, 0
	for i := range t.Models {
		m := &t.Models[i]
		m.Bytes, m.Blocks, m.Records = 0, 0, 0
	}
	last := kv.Key{}
	for b, err := range blocks {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		number, known := f.number[b.Model]
		if !known { // registered since
			continue
		}
		m := &t.Models[number]
		m.Bytes += b.Bytes
		m.Records++
		t.Bytes += b.Bytes
		t.Records++
		if b.Damaged {
			t.Damaged++
		}
		if b.Scope.IsShared() {
			t.Shared += b.Bytes
		}
		if n := len(f.recs); n > 0 && last == b.Key && (t.TooMany || f.recs[n-1].model == number) {
			f.recs[n-1].own += b.Bytes // another group of the same block
			continue
		}
		last = b.Key
		if int64(len(f.recs)) >= most {
			t.TooMany = true
		}
		m.Blocks++
		t.Blocks++
		m.Tokens += int64(b.Tokens)
		m.Hits += int64(b.Hits)
		m.Used = later(m.Used, b.Used)
		t.LastUsed = later(t.LastUsed, b.Used)
		if t.TooMany {
			continue
		}
		f.recs = append(f.recs, rec{
			key: binary.BigEndian.Uint64(b.Key[:]), parent: binary.BigEndian.Uint64(b.Parent[:]), own: b.Bytes,
			first: uint32(b.First), tokens: uint32(b.Tokens), used: minutes(b.Used), hits: b.Hits, kid: -1, next: -1,
			scope: f.scope(b.Scope), model: number,
		})
	}
	t.Scopes = len(f.names)
	return nil
}

func (f *forest) scope(id kv.ScopeID) int32 {
	if id.IsShared() {
		return -1
	}
	n, ok := f.scopes[id]
	if !ok {
		n = int32(len(f.names))
		f.scopes[id] = n
		f.names = append(f.names, id.String()[:6])
	}
	return n
}

// plant finds everybody's parent, and adds bytes, hits and uses up from the leaves to the roots.
func (f *forest) plant(t *Tree) {
	f.roots = make([][]int32, len(t.Models))
	recs := f.recs
	for i := range recs {
		r := &recs[i]
		r.bytes = r.own
		p := sort.Search(len(recs), func(j int) bool { return recs[j].key >= r.parent })
		// A parent ends where its children begin. So nothing on a damaged disk makes a ring.
		if p < len(recs) && recs[p].key == r.parent && recs[p].model == r.model && r.tokens > 0 && recs[p].tokens > 0 && recs[p].first+recs[p].tokens == r.first {
			r.next, recs[p].kid = recs[p].kid, int32(i)
		} else {
			f.roots[r.model] = append(f.roots[r.model], int32(i))
		}
	}
	order := make([]int32, 0, len(recs)) // parents first
	for _, roots := range f.roots {
		order = append(order, roots...)
	}
	for i := 0; i < len(order); i++ {
		for k := recs[order[i]].kid; k >= 0; k = recs[k].next {
			order = append(order, k)
		}
	}
	for _, i := range slices.Backward(order) {
		r := &recs[i]
		for k := r.kid; k >= 0; k = recs[k].next {
			r.bytes += recs[k].bytes
			r.hits += recs[k].hits
			r.used = max(r.used, recs[k].used)
		}
	}
}

func (f *forest) kids(i int32) (out []int32) {
	for k := f.recs[i].kid; k >= 0; k = f.recs[k].next {
		out = append(out, k)
	}
	return out
}

// node is the run that begins with a block.
func (f *forest) node(i int32, depth int) *Node {
	r := &f.recs[i]
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], r.key)
	n := &Node{
		ID: hex.EncodeToString(id[:6]), First: int(r.first), Bytes: r.bytes, Hits: int64(r.hits), Used: timeOf(r.used), depth: depth,
	}
	if r.scope >= 0 {
		n.Scope = f.names[r.scope]
	}
	for {
		n.Blocks++
		n.Tokens += int(r.tokens)
		n.Own += r.own
		k := r.kid
		if k < 0 || f.recs[k].next >= 0 || f.recs[k].scope != r.scope {
			break
		}
		i, r = k, &f.recs[k]
	}
	n.from = f.kids(i)
	return n
}

// more is several runs as one.
func (f *forest) more(id string, from []int32, depth int) *Node {
	n := &Node{ID: id + "+", More: len(from), First: int(f.recs[from[0]].first), depth: depth}
	var used uint32
	stack := slices.Clone(from)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		r := &f.recs[i]
		n.Blocks++
		n.Tokens += int(r.tokens)
		n.Own += r.own
		for k := r.kid; k >= 0; k = f.recs[k].next {
			stack = append(stack, k)
		}
	}
	for _, i := range from {
		n.Bytes += f.recs[i].bytes
		n.Hits += int64(f.recs[i].hits)
		used = max(used, f.recs[i].used)
	}
	n.Used = timeOf(used)
	return n
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func minutes(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(t.Unix() / 60)
}

func timeOf(minutes uint32) time.Time {
	if minutes == 0 {
		return time.Time{}
	}
	return time.Unix(60*int64(minutes), 0).UTC()
}
