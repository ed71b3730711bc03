package db

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/quant"
)

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
// match, nor the store's Suspend, Resume or Close. A fault while fn reads a truncated file is returned as ErrCorrupt.
func (x *Match) View(ctx context.Context, fn func(StoredPlane) error) error {
	e, err := x.m.enter()
	if err != nil {
		return err
	}
	defer x.m.s.leave()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.check(e); err != nil {
		return err
	}
	return e.Source.View(ctx, x.held.Found, x.tokens, func(p read.StoredPlane) error { return fn(StoredPlane(p)) })
}
