package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

func (d *driver) match(mi int, p kv.Prompt) {
	limit := len(p.Tokens)
	if d.r.IntN(3) == 0 {
		limit = 1 + d.r.IntN(limit)
	}
	want := d.expected(mi, p, limit)
	n, reason, err := d.models[mi].Probe(context.Background(), p, db.MatchOptions{Limit: limit})
	d.must(err)
	if n != want || reason.Code == db.NoReason {
		d.fatalf("probe of %d tokens found %d (%v), expected %d", limit, n, reason, want)
	}
	x, err := d.models[mi].Match(context.Background(), p, db.MatchOptions{Limit: limit})
	d.must(err)
	defer x.Close()
	if x.Tokens() != want || x.Reason().Code == db.NoReason {
		d.fatalf("matched %d tokens (%v), expected %d", x.Tokens(), x.Reason(), want)
	}
	d.check(x, mi, p, want)
}

func (d *driver) check(x *db.Match, mi int, p kv.Prompt, want int) {
	desc := d.models[mi].Descriptor()
	rows := storetest.Empty(desc, len(p.Tokens))
	got, err := x.Restore(context.Background(), rows)
	d.must(err)
	if want >= 0 && got.Tokens != want || got.Reason.Code == db.NoReason {
		d.fatalf("restored %d tokens (%v), expected %d", got.Tokens, got.Reason, want)
	}
	storetest.CheckRows(d.t, desc, &p, rows, got.Tokens)
}

// extend stores a prompt from what is stored of it on.
func (d *driver) extend(mi int, p kv.Prompt) {
	if mi == 2 {
		return
	}
	x, err := d.models[mi].Match(context.Background(), p, db.MatchOptions{})
	d.must(err)
	defer x.Close()
	if x.Tokens() == len(p.Tokens) {
		return
	}
	from := x.Tokens()
	_, err = x.Extend(context.Background(), p, storetest.Filled(d.models[mi].Descriptor(), &p, from, len(p.Tokens)), db.PutOptions{})
	d.must(err)
	if mi == 1 {
		// The window rows that the caller had not, before its first: stored already, or the prompt was not used so far.
		d.stored(mi, p, from, 0)
		if n := d.expected(mi, p, len(p.Tokens)); n < len(p.Tokens) && len(p.Tokens) >= kv.OpeningTokens {
			keys, blocks := d.chain(mi, p)
			for i, k := range keys {
				d.t.Logf("block [%d, %d): %+v", blocks[i].start, blocks[i].end, d.blocks[k])
			}
			d.fatalf("a prompt of %d tokens that was extended from %d gives %d", len(p.Tokens), from, n)
		}
		return
	}
	d.stored(mi, p, 0, 0)
}

func (d *driver) hold(mi int, p kv.Prompt) {
	if len(d.held) >= 3 {
		return
	}
	x, err := d.models[mi].Match(context.Background(), p, db.MatchOptions{})
	d.must(err)
	h := heldMatch{x: x, model: mi, p: p, n: x.Tokens()}
	if h.n > 0 {
		keys, _ := d.chain(mi, p.Prefix(h.n))
		h.rests, h.end = keys[len(keys)-1], h.n
	}
	d.held = append(d.held, h)
}

func (d *driver) release() {
	for _, h := range d.held {
		d.check(h.x, h.model, h.p, h.n)
		d.must(h.x.Close())
	}
	d.held = nil
}

func (d *driver) ref(mi int) {
	name := fmt.Sprint("ref ", d.r.IntN(4))
	if d.r.IntN(3) == 0 {
		err := d.s.DeleteRef(context.Background(), name)
		if _, ok := d.refs[name]; ok != (err == nil) {
			d.fatalf("deleting ref %q: %v, expected it there: %t", name, err, ok)
		}
		delete(d.refs, name)
		return
	}
	p := d.prompt()
	if len(p.Tokens) < kv.OpeningTokens {
		return
	}
	n := d.expected(mi, p, len(p.Tokens))
	err := d.models[mi].SetRef(context.Background(), name, p, db.RefOptions{Pinned: d.r.IntN(2) == 0})
	if n < len(p.Tokens) {
		if !errors.Is(err, db.ErrNotStored) {
			d.fatalf("ref on %d of %d stored tokens: %v", n, len(p.Tokens), err)
		}
		if n < kv.OpeningTokens {
			return
		}
		p = p.Prefix(n)
		err = d.models[mi].SetRef(context.Background(), name, p, db.RefOptions{Pinned: true})
	}
	d.must(err)
	d.refs[name], d.refMod[name] = p, mi
	r, err := d.s.Ref(name)
	d.must(err)
	if r.Tokens != len(p.Tokens) {
		d.fatalf("ref %+v", r)
	}
	d.pinned[name] = r.Pinned
}

func (d *driver) setNote(mi int) {
	name, size := fmt.Sprint("note ", d.r.IntN(3)), d.r.IntN(3)*d.r.IntN(db.MaxNoteBytes/2+1)
	value := strings.Repeat(fmt.Sprint(d.r.IntN(10)), size)
	d.must(d.models[mi].SetNote(context.Background(), name, []byte(value)))
	if d.notes[fmt.Sprint(mi, " ", name)] = value; size == 0 {
		delete(d.notes, fmt.Sprint(mi, " ", name))
	}
}

func (d *driver) compareNotes() {
	n := 0
	for mi, m := range d.models {
		names, err := db.Collect(m.Notes())
		d.must(err)
		for _, name := range names {
			value, err := m.Note(name)
			d.must(err)
			if want, ok := d.notes[fmt.Sprint(mi, " ", name)]; !ok || want != string(value) {
				d.fatalf("note %q of model %d is %.9s of %d bytes, expected %.9s of %d", name, mi, value, len(value), want, len(want))
			}
			n++
		}
	}
	if n != len(d.notes) {
		d.fatalf("%d notes, expected %d", n, len(d.notes))
	}
}

// below returns the keys of the blocks under k, k included.
func (d *driver) below(k kv.Key) []kv.Key {
	out := []kv.Key{k}
	for i := 0; i < len(out); i++ {
		for child, b := range d.blocks {
			if b.parent == out[i] {
				out = append(out, child)
			}
		}
	}
	return out
}

func (d *driver) forget(keys []kv.Key) {
	for _, k := range keys {
		delete(d.blocks, k)
	}
	for name := range d.refs {
		if _, err := d.s.Ref(name); errors.Is(err, db.ErrNotFound) {
			delete(d.refs, name)
		}
	}
	for i := range d.held {
		d.held[i].n = -1 // its lease keeps the bytes; a match after Resume finds less
	}
}

func (d *driver) delete(mi int) {
	p := d.prompt()
	if d.r.IntN(2) == 0 {
		p = p.Prefix(p.Clip(min(len(p.Tokens), 100)))
	}
	if len(p.Tokens) == 0 {
		return
	}
	keys, blocks := d.chain(mi, p)
	last := blocks[len(blocks)-1]
	var gone []kv.Key
	for k, b := range d.blocks {
		if b.model == mi && b.parent == last.parent && b.scope == last.scope && b.adapters == last.adapters && shared(b, &p) == len(p.Tokens) {
			gone = append(gone, d.below(k)...)
		}
	}
	_ = keys
	res, err := d.models[mi].Delete(context.Background(), p)
	d.must(err)
	if res.Blocks != len(gone) {
		for _, k := range gone {
			d.t.Logf("expected to go: %+v", d.blocks[k])
		}
		d.fatalf("delete of %d tokens %v, scope %q@%d, spans %v: %d blocks went, expected %d", len(p.Tokens), p.Tokens, p.Scope,
			p.ScopeStart, p.Spans, res.Blocks, len(gone))
	}
	d.forget(gone)
}

func (d *driver) deleteScope() {
	var gone []kv.Key
	for k, b := range d.blocks {
		if b.scope == "alice" {
			gone = append(gone, k)
		}
	}
	res, err := d.s.DeleteScope(context.Background(), "alice")
	d.must(err)
	if res.Blocks != len(gone) {
		d.fatalf("deleted %d blocks, expected %d", res.Blocks, len(gone))
	}
	d.forget(gone)
}

// shrink evicts; whatever goes must be a leaf-first choice that spares pins and leases.
func (d *driver) shrink() {
	before := make([]int, len(d.held)) // a put with fewer window rows may have made a prefix shorter than a match of it is
	for i, h := range d.held {
		if h.n > 0 {
			before[i] = min(h.n, d.expected(h.model, h.p, len(h.p.Tokens)))
		}
	}
	used := storetest.Stats(d.t, d.s).DiskBytes
	_, err := d.s.Shrink(context.Background(), used-int64(d.r.IntN(64<<10)))
	d.must(err)
	actual := d.actual()
	for k := range d.blocks {
		if _, ok := actual[k]; !ok {
			delete(d.blocks, k)
		}
	}
	for name, p := range d.refs {
		if d.pinned[name] {
			if n := d.expected(d.refMod[name], p, len(p.Tokens)); n != len(p.Tokens) {
				d.fatalf("pinned ref %q holds %d of %d tokens after an eviction", name, n, len(p.Tokens))
			}
		}
	}
	for i, h := range d.held {
		if n := d.expected(h.model, h.p, len(h.p.Tokens)); n < before[i] {
			d.fatalf("a leased match of %d tokens holds %d after an eviction, %d before", h.n, n, before[i])
		}
	}
}

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
