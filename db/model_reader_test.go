package db_test

import (
	"context"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// reader opens the store read-only beside the writer. It holds nothing that is not stored any more, however long ago the writer made its last
// checkpoint: a block of it is a block of the map, or the beginning of one that took its place. Right behind a checkpoint it holds all. Refs and
// notes are what they are now.
func (d *driver) reader(all bool) {
	o := d.o
	o.ReadOnly = true
	r, err := db.Open(context.Background(), d.dir, o)
	d.must(err)
	defer r.Close()
	held := map[kv.Key]bool{}
	for b, err := range r.Blocks(context.Background()) {
		d.must(err)
		held[b.Key] = true
		if d.blocks[b.Key] == nil && !d.begun(b) {
			d.fatalf("a reader that opens now has block %+v, which is not stored", b)
		}
	}
	if all {
		for k, b := range d.blocks {
			if !held[k] {
				d.fatalf("a reader that opens behind a checkpoint has no block [%d, %d) of model %d", b.start, b.end, b.model)
			}
		}
	}
	refs, err := db.Collect(r.Refs())
	d.must(err)
	for _, ref := range refs {
		if p, ok := d.refs[ref.Name]; !ok || ref.Tokens != len(p.Tokens) {
			d.fatalf("a reader that opens now has the ref %+v", ref)
		}
	}
	if len(refs) != len(d.refs) {
		d.fatalf("a reader that opens now has %d refs, expected %d", len(refs), len(d.refs))
	}
	mine := *d
	mine.s, mine.models = r, nil
	for _, m := range d.models {
		same, err := r.Model(m.Fingerprint())
		d.must(err)
		mine.models = append(mine.models, same)
	}
	mine.compareNotes()
	for key, b := range d.blocks { // some row that is restored
		if p, ok := d.promptOf(b); ok && held[key] && p.Validate() == nil {
			storetest.Restore(d.t, mine.models[b.model], p)
			break
		}
	}
}

// begun reports whether a block is the beginning of a stored one.
func (d *driver) begun(b db.Block) bool {
	for _, x := range d.blocks {
		if x.parent == b.Parent && x.start == b.First && x.end > x.start+b.Tokens && d.hasher.Scope(x.scope) == b.Scope {
			p, ok := d.promptOf(x)
			if !ok || p.Clip(x.start+b.Tokens) != x.start+b.Tokens {
				continue
			}
			p = p.Prefix(x.start + b.Tokens)
			keys, _ := d.chain(x.model, p)
			if keys[len(keys)-1] == b.Key {
				return true
			}
		}
	}
	return false
}

// promptOf is a prompt that ends with a block, perhaps inside a span.
func (d *driver) promptOf(b *mapBlock) (p kv.Prompt, ok bool) {
	var way []*mapBlock
	for x := b; ; x = d.blocks[x.parent] {
		if x == nil {
			return p, false
		}
		if way = append(way, x); x.start == 0 {
			break
		}
	}
	if b.adapters != "[]" {
		p.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}} // as driver.prompt has them
	}
	for _, x := range slices.Backward(way) {
		if p.Scope == "" && x.scope != "" {
			p.Scope, p.ScopeStart = x.scope, x.start
		}
		p.Tokens = append(p.Tokens, x.tokens...)
		for _, s := range x.spans {
			if n := len(p.Spans); n == 0 || p.Spans[n-1] != s {
				p.Spans = append(p.Spans, s)
			}
		}
	}
	return p, true
}
