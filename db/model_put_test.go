package db_test

import (
	"context"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

func (d *driver) put(mi int, p kv.Prompt) {
	m := d.models[mi]
	rows := storetest.Filled(m.Descriptor(), &p, 0, len(p.Tokens))
	from := 0
	if mi == 1 && d.r.IntN(2) == 0 { // the runtime has lost the older window rows
		from = d.r.IntN(len(p.Tokens))
		for i, tensor := range m.Descriptor().Tensors {
			if tensor.Group == 1 {
				rows[i] = rows[i].Slice(tensor, from, len(p.Tokens))
			}
		}
	}
	if mi == 2 && d.r.IntN(2) == 0 {
		d.turns(p)
		return
	}
	d.putRows(mi, p, rows, from, 0)
}

// putRows puts rows, of windows only those from a position on, and keeps so many states if keep is not 0.
func (d *driver) putRows(mi int, p kv.Prompt, rows kv.Rows, winFrom, keep int) {
	res, err := d.models[mi].Put(context.Background(), p, rows, db.PutOptions{KeepStates: keep})
	d.must(err)
	if res.Tokens != len(p.Tokens) {
		d.fatalf("put stored %d of %d tokens", res.Tokens, len(p.Tokens))
	}
	d.stored(mi, p, winFrom, keep)
}

// stored notes what a put of p must have left, with window rows from that position on, and of the states on its way so many if keep
// is not 0.
func (d *driver) stored(mi int, p kv.Prompt, winFrom, keep int) {
	keys, blocks := d.chain(mi, p)
	for i, k := range keys {
		b := d.blocks[k]
		isNew := b == nil
		if isNew {
			b = blocks[i]
			d.blocks[k] = b
		}
		if mi == 1 {
			if from := max(winFrom, b.start); from < b.end && b.end-from > b.winTo-b.winFrom {
				b.winFrom, b.winTo = d.widened(k, b, from), b.end
			} else if isNew && from >= b.end { // all of its rows come from another block
				b.winFrom, b.winTo = d.widened(k, b, b.end), b.end
			}
		}
		if mi == 2 && i == len(keys)-1 {
			b.state = true
		}
	}
	// A tail that a new sibling begins with is not needed any more, unless something rests on it.
	actual := d.actual()
	if keep > 0 {
		d.thinned(mi, p, keep, actual)
	}
	for k, b := range d.blocks {
		if _, ok := actual[k]; ok {
			continue
		}
		superseded := false
		for i, other := range blocks {
			superseded = superseded || (keys[i] != k && other.parent == b.parent && len(other.tokens) > len(b.tokens) &&
				slices.Equal(other.tokens[:len(b.tokens)], b.tokens))
		}
		if !superseded || b.state {
			d.fatalf("block [%d, %d) of model %d is gone", b.start, b.end, b.model)
		}
		delete(d.blocks, k)
	}
}

// widened is where the window record of block k begins that a put with rows from that position on has left: the store
// completes it with the rows of a block that begins with the same tokens. Which of several is the store's choice.
func (d *driver) widened(k kv.Key, b *mapBlock, from int) int {
	e, ok := d.firstRow(k, 1)
	if !ok || e == from || from == b.start {
		return from
	}
	p := kv.Prompt{Tokens: append(make([]kv.Token, b.start), b.tokens...), Spans: b.spans}
	for _, other := range d.blocks {
		if other.parent == b.parent && other.scope == b.scope && other.model == b.model && other.adapters == b.adapters &&
			shared(other, &p) >= from && other.winFrom == e && other.winTo >= from {
			return e
		}
	}
	d.fatalf("window rows of block [%d, %d) begin at %d; the put had them from %d, and no block completes that", b.start, b.end, e, from)
	return 0
}
