package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
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
// deleted or evicted before the match first looked for it (ErrNotStored). An error of fn ends it too; fn must not call methods of this match, nor the store's Suspend, Resume or Close. A fault while fn reads a
// truncated file is returned as ErrCorrupt.
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
	d := &x.m.ms.desc
	if err := x.found.resolveTo(x.tokens); err != nil {
		return err
	}
	for i := range x.found.hits {
		h := &x.found.hits[i]
		for g := range h.groups {
			// What went since the match, or is bad, is not passed over: nobody would miss it.
			if bad := h.groups[g].bad; bad != nil && h.start < x.tokens && (d.Groups[g].Kind != kv.Window || h.end > x.tokens-d.Groups[g].Window) {
				err := fmt.Errorf("rows from position %d on: %w", h.start, bad)
				if errors.Is(bad, segments.ErrDestroyed) {
					err = fmt.Errorf("%w: %w", ErrNotStored, err)
				}
				return err
			}
			from, to := h.covers(g)
			if to = min(to, x.tokens); from >= to || d.Groups[g].Kind == kv.StateAt {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.viewRecord(e, h, g, from, to, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *Match) viewRecord(e *engine, h *hit, g, from, to int, fn func(StoredPlane) error) error {
	d := &x.m.ms.desc
	return e.set.Read(h.groups[g].loc, func(r *segments.Record) error {
		if err := x.identify(r, h.key, h.parent, h.scope, g, h.start); err != nil {
			return damage.Wrap(r.File(), r.Loc().Offset, "record", err)
		}
		if shared := r.MatchTokens(&x.prompt, h.start); h.start+shared < min(h.end, to) {
			return fmt.Errorf("%w: record %s holds other tokens from position %d on", errCollision, h.key, h.start+shared)
		}
		for i := range r.Tensors() {
			te := r.Tensor(i)
			if int(te.Tensor) >= len(d.Tensors) || d.Tensors[te.Tensor].Group != g {
				continue
			}
			if err := r.VerifyPlane(i); err != nil {
				return err
			}
			p := planeOf(te)
			first := h.start + int(te.FirstRow)
			if first > from || first+int(te.Rows) < to {
				return fmt.Errorf("record %s has rows [%d, %d) of tensor %d, not [%d, %d)", h.key, first, first+int(te.Rows), te.Tensor, from, to)
			}
			out := StoredPlane{
				Tensor: int(te.Tensor), First: first, Rows: min(p.Rows, to-first), Codec: p.Codec, Bytes: r.Plane(i),
			}
			if p.Codec == quant.Q8_0 && p.Compression == quant.None {
				codes, err := quant.Codes(p, d.Tensors[te.Tensor], r.Plane(i))
				if err != nil {
					return err
				}
				out.Codes = codes
			}
			if err := fn(out); err != nil {
				return err
			}
		}
		return nil
	})
}
