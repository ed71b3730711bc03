package read

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// StoredPlane is a plane as it lies in the mapped file. Bytes are valid only while the function that got it runs, and must not be written
// to.
type StoredPlane struct {
	Tensor int
	First  int // position of the first row
	Rows   int // rows that belong to the found prefix; the plane may hold more behind them
	Codec  quant.Codec
	Bytes  []byte // as stored
	Codes  []byte // of an uncompressed Q8_0 plane: ggml's block_q8_0, row after row; else nil
}

// View calls fn for each plane of the first tokens of what l found, in order of position, after comparing its identity and its checksum. It
// ends with the first error: that of a check, fn's, or kv.ErrNotStored for what was deleted or evicted.
func (s *Source) View(ctx context.Context, l *prefix.Lookup, tokens int, fn func(StoredPlane) error) error {
	d := l.Model().Desc
	if err := l.ResolveTo(tokens); err != nil {
		return err
	}
	for i := range l.Hits {
		h := &l.Hits[i]
		for g := range h.Groups {
			// What went since the match, or is bad, is not passed over: nobody would miss it.
			if bad := h.Groups[g].Bad; bad != nil && h.Start < tokens && (d.Groups[g].Kind != kv.Window || h.End > tokens-d.Groups[g].Window) {
				err := fmt.Errorf("rows from position %d on: %w", h.Start, bad)
				if errors.Is(bad, segments.ErrDestroyed) {
					err = fmt.Errorf("%w: %w", kv.ErrNotStored, err)
				}
				return err
			}
			from, to := h.Covers(g)
			if to = min(to, tokens); from >= to || d.Groups[g].Kind == kv.StateAt {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.viewRecord(l, h, g, from, to, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Source) viewRecord(l *prefix.Lookup, h *prefix.Hit, g, from, to int, fn func(StoredPlane) error) error {
	return s.Segments.Read(h.Groups[g].Loc, func(r *segments.Record) error {
		if err := identifyRows(r, l.Model(), l.Prompt(), h, g, to); err != nil {
			return damage.Wrap(r.File(), r.Loc().Offset, "record", err)
		}
		tensors, err := tensorsOf(r, l.Model(), g)
		if err != nil {
			return err
		}
		for i, ti := range tensors {
			te := r.Tensor(i)
			if err := r.VerifyPlane(i); err != nil {
				return err
			}
			if err := hasRows(h, te, from, to); err != nil {
				return err
			}
			p := PlaneOf(te)
			first := h.Start + int(te.FirstRow)
			out := StoredPlane{
				Tensor: ti, First: first, Rows: min(p.Rows, to-first), Codec: p.Codec, Bytes: r.Plane(i),
			}
			if p.Codec == quant.Q8_0 && p.Compression == quant.None {
				codes, err := quant.Codes(p, l.Model().Desc.Tensors[ti], r.Plane(i))
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
