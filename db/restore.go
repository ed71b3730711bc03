package db

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Restored says what a Restore gave.
type Restored struct {
	Tokens int    // the rows of [0, Tokens) that were asked for are right; all rows beyond are zero
	Reason Reason // why not more
	Bytes  int64  // stored bytes that were read
}

// Restore writes the matched prefix into rows: of every tensor the rows of the positions [0, Tokens) that rows has room
// for (of a window group the last ones only; of a StateAt group the state). Every byte is checked first: model, key,
// parent, scope, token ids, spans and checksum. What fails shortens the prefix, and every row beyond it is zeroed. So do rows that end
// earlier (MemoryShort), and the match stays that short: give more rows to a new one.
//
// rows has one entry for each tensor of the model's descriptor; one without pieces is left out. Blocks that end before the first row that
// is asked for are not read: of them only the keys were compared. An error means that
// the call itself was wrong (a closed match, a cancelled context): then all rows are zero; rows that do not fit are not touched. Memory that
// faults when it is written, the map of a file on a full disk, say, is kv.ErrRows, too, and no damage of what is stored: use none of these rows.
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

// restoreInto is Restore. With part, rows are a part of the prefix and do not end it.
func (x *Match) restoreInto(ctx context.Context, rows kv.Rows, ready func(layer, tokens int), part bool) (got Restored, err error) {
	start := time.Now()
	d := &x.m.ms.Desc
	if err := rows.Validate(d); err != nil {
		return Restored{}, err
	}
	defer func() {
		if zerr := read.Zero(d, rows, got.Tokens); zerr != nil && !errors.Is(err, kv.ErrRows) {
			got, err = Restored{}, errors.Join(err, zerr)
		}
	}()
	e, err := x.enter(ctx)
	if err != nil {
		return got, err
	}
	defer x.leave()
	asked := x.tokens
	bytes, err := int64(0), x.held.Resolve(e.Pins, asked)
	if err == nil {
		bytes, err = e.Source.Restore(ctx, x.held.Found, rows, ready, part)
	}
	if engine.IsIndexDamage(err) {
		x.m.s.indexDamaged(err)
		x.held.Found.Reset()
		x.held.Found.Reason, err = Reason{Code: Damaged, Err: err}, nil
	}
	x.took()
	if err != nil {
		return got, err
	}
	got = Restored{Tokens: x.tokens, Reason: x.reason, Bytes: bytes}
	reused := got.Tokens
	if part && x.counted { // the prefix is reused once, however many pieces it comes in
		reused = 0
	}
	x.counted = true
	e.Count.Restored(reused, got.Bytes, time.Since(start))
	x.m.logShort("restore", got.Tokens, asked, got.Reason)
	return got, nil
}

// StoredPlane is a plane as it lies in the mapped file. Bytes are valid only while the function that got it runs, and
// must not be written to.
type StoredPlane struct {
	Tensor int
	First  int // position of the first row
	Rows   int // rows that belong to the matched prefix; the plane may hold more behind them
	Codec  quant.Codec
	Bytes  []byte // as stored
	Codes  []byte // of an uncompressed Q8_0 plane: ggml's block_q8_0, row after row; else nil
}

// View hands out the matched prefix as it is stored, plane by plane in order of position, without a copy. Each plane's
// identity and checksum are compared before fn sees it; the first that fails ends the walk with its error, and so does what was
// deleted or evicted before the match first looked for it (ErrNotStored). An error of fn ends it too; fn must not call methods of this
// match, nor the store's Suspend, Resume or Close. A fault while fn reads a truncated file is returned as ErrCorrupt, one in other memory as kv.ErrRows.
func (x *Match) View(ctx context.Context, fn func(StoredPlane) error) error {
	e, err := x.enter(ctx)
	if err != nil {
		return err
	}
	defer x.leave()
	if err := x.held.Resolve(e.Pins, x.tokens); err != nil {
		return x.m.s.checkIndex(err)
	}
	return e.Source.View(ctx, x.held.Found, x.tokens, func(p read.StoredPlane) error { return fn(StoredPlane(p)) })
}
