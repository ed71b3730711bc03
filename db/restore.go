package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// Restored says what a Restore gave.
type Restored struct {
	Tokens int    // the rows of [0, Tokens) that were asked for are right; all rows beyond are zero
	Reason Reason // why not more
	Bytes  int64  // stored bytes that were read
}

// Restore writes the matched prefix into rows: of every tensor the rows of the positions [0, Tokens) that rows has room
// for (of a window group the last ones only; of a StateAt group the state). Every byte is checked first: model, key,
// parent, scope, token ids, spans and checksum. What fails shortens the prefix, and every row beyond it is zeroed.
//
// rows has one entry for each tensor of the model's descriptor; one without pieces is left out. Blocks that end before the first row that
// is asked for are not read: of them only the keys were compared. An error means that
// the call itself was wrong (a closed match, a cancelled context): then all rows are zero; rows that do not fit are not touched.
func (x *Match) Restore(ctx context.Context, rows kv.Rows) (Restored, error) {
	return x.RestoreLayers(ctx, rows, nil)
}

// RestoreLayers is Restore in the order of the layers: when the rows of a layer are there, it calls ready with the layer
// and the number of tokens that are good so far, so that a runtime can work on one layer while the next is read. That number
// never grows. If damage makes it smaller, all layers come again with the smaller one: what was computed is to be begun
// anew. Rows beyond it are zeroed when RestoreLayers returns, not before. States of a StateAt group are there before the
// first call. ready must not call methods of this match, nor the store's Suspend, Resume or Close.
func (x *Match) RestoreLayers(ctx context.Context, rows kv.Rows, ready func(layer, tokens int)) (Restored, error) {
	return x.restoreInto(ctx, rows, ready, false)
}

// RestoreRange is Restore for a runtime that takes a prefix piece by piece: rows may cover any positions, and what they
// leave out stays matched and is not read. Every call returns [Match.Tokens] unless it meets damage: then the match has become
// shorter, and what earlier calls gave beyond Restored.Tokens must not be used, nor, of a model with window or state groups, what
// they gave of those. Of a window group it writes the last rows before Match.Tokens only, and leaves all others as they were.
func (x *Match) RestoreRange(ctx context.Context, rows kv.Rows) (Restored, error) {
	return x.restoreInto(ctx, rows, nil, true)
}

// restoreInto is Restore. With some, rows are a part of the prefix and do not end it.
func (x *Match) restoreInto(ctx context.Context, rows kv.Rows, ready func(layer, tokens int), some bool) (Restored, error) {
	start := time.Now()
	d := &x.m.ms.desc
	if err := rows.Validate(d); err != nil {
		return Restored{}, err
	}
	var got Restored
	defer func() { zeroFrom(d, rows, got.Tokens) }()
	e, err := x.m.enter()
	if err != nil {
		return got, err
	}
	defer x.m.s.leave()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.check(e); err != nil {
		return got, err
	}
	asked := x.tokens
	got, err = x.restore(ctx, e, rows, ready, some)
	if err != nil {
		got.Tokens = 0
	}
	if err == nil {
		count := got
		if some && x.counted { // the prefix is reused once, however many pieces it comes in
			count.Tokens = 0
		}
		x.counted = true
		e.count.restored(count, since(start))
		e.logShort("restore", x.m, got.Tokens, asked, got.Reason)
	}
	return got, err
}

// restore tries the matched prefix, and after damage the next shorter one, until one is right.
func (x *Match) restore(ctx context.Context, e *engine, rows kv.Rows, ready func(layer, tokens int), some bool) (Restored, error) {
	d, l := &x.m.ms.desc, x.found
	if l.tokens == 0 {
		return Restored{Reason: l.reason}, nil
	}
	defer x.took()
	if err := l.resolveTo(l.tokens); err != nil {
		return x.lost(err)
	}
	promised, why := l.tokens, l.reason
	room := promised
	for i, t := range d.Tensors {
		if !some && d.Groups[t.Group].Kind != kv.StateAt && len(rows[i].Pieces) > 0 {
			room = min(room, rows[i].End())
		}
	}
	cut := room < promised
	if cut {
		l.limit = room
	}
	l.endAt(room) // what lies beyond may have been stored, or have become usable, after the lease was taken
	for {
		before := l.tokens
		if err := l.settle(); err != nil { // what was resolved, or read, may be bad
			return x.lost(err)
		}
		switch {
		case cut && (l.reason.Code == Complete || room == 0):
			l.reason = Reason{Code: MemoryShort, At: room}
		case l.tokens == promised:
			l.reason = why
		}
		if l.tokens > before {
			return Restored{}, fmt.Errorf("db: internal: a damaged block made the match longer: %d and %d tokens", before, l.tokens)
		}
		bytes, err := x.restoreTokens(ctx, e, rows, ready, some)
		if err == nil {
			return Restored{Tokens: l.tokens, Reason: l.reason, Bytes: bytes}, nil
		}
		if !errors.Is(err, errShorter) {
			return Restored{}, err
		}
	}
}

// lost ends a restore for which the index cannot be read.
func (x *Match) lost(err error) (Restored, error) {
	if !isIndexDamage(err) {
		return Restored{}, err
	}
	x.m.s.indexDamaged(err)
	x.found.reset()
	x.found.reason = Reason{Code: Damaged, Err: err}
	return Restored{Reason: x.found.reason}, nil
}

// errShorter says that a hit was marked bad: the usable prefix has to be computed anew.
var errShorter = errors.New("shorter")

// identify compares all that a record says it is with what was looked for.
func (x *Match) identify(r *segments.Record, key, parent kv.Key, scope kv.ScopeID, group, start int) error {
	switch {
	case r.Key() != key, int(r.Group()) != group:
		return fmt.Errorf("expected the record of block %s group %d, found %s group %d", key, group, r.Key(), r.Group())
	case r.Parent() != parent:
		return fmt.Errorf("%w: record %s goes on from %s, not %s", errCollision, key, r.Parent(), parent)
	case r.Model() != x.m.ms.Fingerprint:
		return fmt.Errorf("record %s is of model %s, not %s", key, r.Model(), x.m.ms.Fingerprint)
	case r.Scope() != scope:
		return fmt.Errorf("%w: record %s is of another scope", errCollision, key)
	case int(r.First()) != start:
		return fmt.Errorf("%w: record %s starts at position %d, not %d", errCollision, key, r.First(), start)
	}
	return nil
}

// restoreState writes the state that is valid at st.at.
func (x *Match) restoreState(e *engine, st *stateHit, rows kv.Rows) error {
	return x.readState(e, st, func(r *segments.Record, i int, t kv.Tensor, te segments.TensorEntry) error {
		dst := rows[te.Tensor]
		if dst.Count() == 0 {
			return nil
		}
		if t.Width == 0 && int64(len(dst.Pieces[0].Mem)) < stateLength(te) {
			return fmt.Errorf("%w: %s: %d bytes for a state of %d", kv.ErrRows, t, len(dst.Pieces[0].Mem), stateLength(te))
		}
		if t.Width == 0 {
			dst = kv.Packed(dst.First, 1, dst.Pieces[0].Mem[:stateLength(te)])
		}
		return decodeVerified(r, i, te, dst, t, 0, 0)
	})
}

func (x *Match) stateBytes(e *engine, st stateHit, tensor int) (n int64, err error) {
	err = x.readState(e, &st, func(_ *segments.Record, _ int, t kv.Tensor, te segments.TensorEntry) error {
		if int(te.Tensor) == tensor {
			n = int64(t.RowBytes())
			if t.Width == 0 {
				n = stateLength(te)
			}
		}
		return nil
	})
	return n, err
}

func (x *Match) readState(e *engine, st *stateHit, fn func(r *segments.Record, i int, t kv.Tensor, te segments.TensorEntry) error) error {
	d := &x.m.ms.desc
	return e.set.Read(st.loc, func(r *segments.Record) error {
		if err := x.identify(r, st.key, st.parent, st.scope, st.group, st.start); err != nil {
			return err
		}
		if shared := r.MatchTokens(&x.prompt, st.start); st.start+shared != st.at || r.TokenCount() != shared {
			return fmt.Errorf("%w: the state of block %s is not that after these %d tokens", errCollision, st.key, st.at)
		}
		for i := range r.Tensors() {
			te := r.Tensor(i)
			if int(te.Tensor) >= len(d.Tensors) || d.Tensors[te.Tensor].Group != st.group {
				return fmt.Errorf("state record %s has tensor %d, which is not in group %d", st.key, te.Tensor, st.group)
			}
			if err := fn(r, i, d.Tensors[te.Tensor], te); err != nil {
				return err
			}
		}
		return nil
	})
}

// stateLength is the length of a state whose length varies: its plane is stored as it is.
func stateLength(te segments.TensorEntry) int64 { return int64(te.Length) }

func planeOf(te segments.TensorEntry) quant.Plane {
	return quant.Plane{
		Codec: quant.Codec(te.Codec), Compression: quant.Compression(te.Compression),
		Rows: int(te.Rows), Exceptions: te.Exceptions, MaxError: te.MaxError,
	}
}

// zeroFrom clears the rows behind the first n tokens, and the states if there are none.
func zeroFrom(d *kv.Descriptor, rows kv.Rows, n int) {
	for i, t := range d.Tensors {
		if d.Groups[t.Group].Kind == kv.StateAt {
			if n == 0 {
				zero(t, rows[i], rows[i].First)
			}
			continue
		}
		zero(t, rows[i], n)
	}
}

// zero clears the rows of positions from on.
func zero(t kv.Tensor, rows kv.TensorRows, from int) {
	pos := rows.First
	for _, p := range rows.Pieces {
		if t.Width == 0 {
			clear(p.Mem)
			continue
		}
		row, elem := p.Strides(t)
		size, elems := t.DType.GroupBytes(), t.Width/t.DType.Group()
		for r := max(0, from-pos); r < p.Count; r++ {
			at := r * row
			if elem == size {
				clear(p.Mem[at : at+elems*size])
				continue
			}
			for range elems {
				clear(p.Mem[at : at+size])
				at += elem
			}
		}
		pos += p.Count
	}
}
