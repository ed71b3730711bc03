package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// TestAgainstPlainMap drives the store with random operations beside a plain map of what must be in it, and finds no
// difference: not after eviction, deletion, compaction, suspension, a closed or killed process, or a lost index.
// DORMOUSE_MODEL_OPS sets the number of operations, DORMOUSE_MODEL_SEED the first seed.
func TestAgainstPlainMap(t *testing.T) {
	ops, seed := 1200, uint64(1)
	if testing.Short() {
		ops = 600
	}
	if v, err := strconv.Atoi(os.Getenv("DORMOUSE_MODEL_OPS")); err == nil {
		ops = v
	}
	if v, err := strconv.Atoi(os.Getenv("DORMOUSE_MODEL_SEED")); err == nil {
		seed = uint64(v)
	}
	const opsPerStore = 600
	for done := 0; done < ops; done += opsPerStore {
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runModel(t, seed, opsPerStore) })
		if !ok {
			return
		}
		seed++
	}
}

// mapBlock is a block that must be stored.
type mapBlock struct {
	parent     kv.Key
	model      int
	scope      string // of the block itself
	adapters   string
	start, end int
	tokens     []kv.Token // the block's own
	spans      []kv.Span  // that touch it, absolute
	winFrom    int        // window rows [winFrom, winTo), absolute
	winTo      int
	state      bool
}

type driver struct {
	t      *testing.T
	r      *rand.Rand
	dir    string
	o      db.Options
	s      *db.Store
	hasher kv.Hasher
	descs  []kv.Descriptor
	models []*db.Model
	blocks map[kv.Key]*mapBlock
	refs   map[string]kv.Prompt
	refMod map[string]int
	pinned map[string]bool
	notes  map[string]string // by model and name
	held   []heldMatch
	log    []string
}

type heldMatch struct {
	x     *db.Match
	model int
	p     kv.Prompt
	n     int
	rests kv.Key // of a match that found something: the block that ends there, if it is stored; in a model without rows it has the state
	end   int    // what it found first
}

func runModel(t *testing.T, seed uint64, ops int) {
	d := &driver{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), o: storetest.Options(),
		blocks: map[kv.Key]*mapBlock{}, refs: map[string]kv.Prompt{}, refMod: map[string]int{}, pinned: map[string]bool{}, notes: map[string]string{},
	}
	d.o.SegmentBytes = 256 << 10
	d.o.CheckpointInterval = -1
	d.descs = []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40), crashtest.Opaque()}
	d.open()
	defer func() {
		if t.Failed() {
			for _, l := range d.log[max(0, len(d.log)-40):] {
				t.Log(l)
			}
		}
	}()
	for i := range ops {
		d.step(i)
		if t.Failed() {
			return
		}
	}
	d.release()
	storetest.OK(t, d.s.Close())
}

func (d *driver) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

func (d *driver) fatalf(format string, args ...any) {
	d.t.Helper()
	d.t.Fatalf(format, args...)
}

func (d *driver) open() {
	s, err := storetest.TryOpen(vfs.OS, d.dir, d.o)
	if err != nil {
		d.fatalf("open: %v", err)
	}
	d.s, d.hasher = s, storetest.Hasher(d.t, d.dir)
	d.t.Cleanup(func() { s.Close() })
	d.models = nil
	for _, desc := range d.descs {
		d.models = append(d.models, storetest.Model(d.t, s, desc))
	}
}

// prompt makes a prompt from a small vocabulary of beginnings, so that they share much and part everywhere.
func (d *driver) prompt() kv.Prompt {
	var p kv.Prompt
	for range 1 + d.r.IntN(4) {
		part := crashtest.Tokens(d.r.IntN(6), 90)
		p.Tokens = append(p.Tokens, part[:1+d.r.IntN(len(part))]...)
	}
	if d.r.IntN(4) == 0 {
		p.Scope = []string{"alice", "bob"}[d.r.IntN(2)]
		p.ScopeStart = d.r.IntN(3) * 37
	}
	if d.r.IntN(5) == 0 && len(p.Tokens) > 60 {
		p.Spans = []kv.Span{{Start: 20 + d.r.IntN(10), Len: 25, Hash: kv.Hash{byte(d.r.IntN(2))}}}
	}
	p.ScopeStart = p.Clip(p.ScopeStart) // no part of an image is shared and the rest not
	if d.r.IntN(10) == 0 {
		p.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}}
	}
	return p
}

func (d *driver) step(i int) {
	mi := d.r.IntN(len(d.models))
	n := d.r.IntN(100)
	switch {
	case n < 35:
		p := d.prompt()
		d.note("%d put model %d, %d tokens, scope %q@%d, spans %v", i, mi, len(p.Tokens), p.Scope, p.ScopeStart, p.Spans)
		d.put(mi, p)
	case n < 68:
		p := d.prompt()
		d.note("%d match model %d, %d tokens, scope %q@%d, spans %v", i, mi, len(p.Tokens), p.Scope, p.ScopeStart, p.Spans)
		d.match(mi, p)
	case n < 74:
		p := d.prompt()
		d.note("%d extend model %d, %d tokens", i, mi, len(p.Tokens))
		d.extend(mi, p)
	case n < 78:
		p := d.prompt()
		d.note("%d hold model %d, %d tokens", i, mi, len(p.Tokens))
		d.hold(mi, p)
	case n < 81:
		d.note("%d release", i)
		d.release()
	case n < 85:
		d.note("%d ref", i)
		if d.ref(mi); n%2 == 0 {
			d.setNote(mi)
		}
	case n < 87:
		d.note("%d delete", i)
		d.delete(mi)
	case n < 88:
		d.note("%d delete scope", i)
		d.deleteScope()
	case n < 91:
		d.note("%d shrink", i)
		d.shrink()
	case n < 94:
		d.note("%d checkpoint", i)
		d.must(d.s.Checkpoint(context.Background()))
	case n < 95:
		d.note("%d compact", i)
		_, err := d.s.Compact(context.Background(), db.CompactOptions{All: true})
		d.must(err)
	case n < 96:
		d.note("%d suspend, resume", i)
		d.must(d.s.Suspend(context.Background()))
		d.must(d.s.Resume(context.Background()))
		for j := range d.held {
			d.held[j].n = -1 // looked up anew: what it gives is right, how much may have changed
		}
	case n < 97:
		d.note("%d close, open", i)
		d.release()
		d.must(d.s.Close())
		d.open()
	case n < 99:
		d.note("%d kill, open", i)
		d.kill()
		d.open()
	default:
		d.note("%d kill, lose index, open", i)
		d.kill()
		os.Remove(filepath.Join(d.dir, storetest.IndexFile))
		if d.r.IntN(2) == 0 {
			os.Remove(filepath.Join(d.dir, storetest.BloomFile))
		}
		d.open()
	}
	d.compare()
	if i%5 == 0 || n == 92 {
		d.reader(n == 92) // right behind a checkpoint
	}
}

func (d *driver) must(err error) {
	d.t.Helper()
	if err != nil {
		d.fatalf("%v", err)
	}
}

// kill leaves the files as a SIGKILL would: nothing is synced, sealed or checkpointed.
func (d *driver) kill() {
	var open []*db.Match
	for _, h := range d.held {
		open = append(open, h.x)
	}
	d.held = nil
	storetest.Crash(d.s, open...)
}

// chain returns the keys of a prompt's blocks and what must be stored for each.
func (d *driver) chain(mi int, p kv.Prompt) (keys []kv.Key, blocks []*mapBlock) {
	m := d.models[mi]
	c := d.hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p)
	for i := range c.Len() {
		start, end := c.Block(i)
		b := &mapBlock{
			parent: c.Parent(i), model: mi, adapters: fmt.Sprint(p.Adapters), start: start, end: end,
			tokens: slices.Clone(p.Tokens[start:end]),
		}
		if !c.Scope(i).IsShared() {
			b.scope = p.Scope
		}
		for _, s := range p.Spans {
			if s.Start < end && s.End() > start {
				b.spans = append(b.spans, s)
			}
		}
		keys, blocks = append(keys, c.Key(i)), append(blocks, b)
	}
	return keys, blocks
}

// firstRow is the position of the first row of a stored record.
func (d *driver) firstRow(k kv.Key, group int) (first int, ok bool) {
	for _, b := range d.actual()[k] {
		if b.Group == group {
			return b.First + b.RowFirst, true
		}
	}
	return 0, false
}

func (d *driver) actual() map[kv.Key][]db.Block {
	out := map[kv.Key][]db.Block{}
	for b, err := range d.s.Blocks(context.Background()) {
		d.must(err)
		out[b.Key] = append(out[b.Key], b)
	}
	return out
}

// compare checks that the store holds the map's blocks and no others, and that its counts say so.
func (d *driver) compare() {
	actual := d.actual()
	for k, b := range d.blocks {
		records := actual[k]
		if len(records) == 0 {
			d.fatalf("block [%d, %d) of model %d is not stored", b.start, b.end, b.model)
		}
		for _, x := range records {
			switch {
			case x.Group == 0 && (x.First != b.start || x.Tokens != b.end-b.start || x.Parent != b.parent):
				d.fatalf("block %s is %+v, expected %+v", k, x, b)
			case x.Group == 1 && b.model == 1 && (x.First+x.RowFirst != b.winFrom || x.Rows != b.winTo-b.winFrom):
				d.fatalf("window record %+v, expected rows [%d, %d)", x, b.winFrom, b.winTo)
			}
		}
		want := 1
		if b.winTo > b.winFrom || b.state {
			want = 2
		}
		if len(records) != want {
			d.fatalf("block [%d, %d) of model %d has %d records, expected %d", b.start, b.end, b.model, len(records), want)
		}
	}
	d.compareNotes()
	if len(actual) != len(d.blocks) {
		for k, x := range actual {
			if d.blocks[k] == nil {
				d.fatalf("block %+v should not be stored", x)
			}
		}
	}
	if n := storetest.Stats(d.t, d.s).Blocks; n != int64(len(d.blocks)) {
		d.fatalf("the store counts %d blocks, there are %d", n, len(d.blocks))
	}
	for k, b := range d.blocks {
		if _, ok := d.blocks[b.parent]; !ok && b.start > 0 {
			d.fatalf("block %s is stored without its prefix", k)
		}
	}
}
