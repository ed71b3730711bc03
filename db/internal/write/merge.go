package write

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// stored are rows of a block that lie in the store already, and complete what a put's caller has of it: the first rows, from
// another prompt's block that begins with the same tokens, or those of the record that the put replaces. A nil stored has
// none.
type stored struct {
	held     lease.Held     // of a block's first rows
	lease    segments.Lease // of a record that is replaced
	hit      *prefix.Hit
	from, to int // of the group that it is asked for
	why      kv.Reason
	err      error // a read that failed
}

// release gives the leases back.
func (s *stored) release(pins *lease.Pins) {
	switch {
	case s == nil:
	case s.held.Found != nil:
		s.held.Drop(pins)
	default:
		s.lease.Release()
	}
}

// reason says why a block that begins at start could not be completed.
func (s *stored) reason(start int) kv.Reason {
	switch {
	case s == nil:
		return kv.Reason{Code: kv.Ends, At: start}
	case s.err != nil:
		return prefix.ReasonOf(s.err, start)
	}
	return s.why
}

// window narrows s to what it has of group g. s keeps the lease.
func (s *stored) window(g int) *stored {
	if s == nil || s.hit == nil {
		return nil
	}
	out := &stored{hit: s.hit, why: s.why, err: s.err}
	out.from, out.to = s.hit.Covers(g)
	return out
}

// head looks for the first rows of block i, if the caller's begin later: those of group 0, which must be there if the block
// is new, and those of windows, without which a prompt could be stored and not be used.
func (w *Put) head(ctx context.Context, i int, known bool) (*stored, error) {
	start, end := w.Chain.Block(i)
	need, limit := 0, 0
	if c := w.cover[0]; !known && c.start > start {
		need = min(c.start, end)
		limit = need
	}
	for g, group := range w.model.Desc.Groups {
		if c := w.cover[g]; group.Kind == kv.Window && start < c.start && c.start < min(c.end, end) {
			limit = max(limit, c.start)
		}
	}
	if limit == 0 || need == 0 && !w.idle() { // below a block that is not published nothing is stored
		return nil, nil
	}
	if err := w.Publish(ctx); err != nil {
		return nil, err
	}
	out := new(stored)
	if err := out.held.Find(w.store.Store, w.model.Model, &w.prompt, limit, true); err != nil {
		out.release(w.store.Pins)
		return nil, err
	}
	found := out.held.Found
	out.why = found.Reason
	if n := len(found.Hits); n > 0 {
		if err := found.Resolve(n - 1); err != nil {
			out.release(w.store.Pins)
			return nil, err
		}
	}
	// What the usable prefix of all groups is does not matter: each group is asked for its own rows.
	end = 0
	if n := len(found.Hits); n > 0 {
		out.hit = &found.Hits[n-1]
		out.from, out.to = out.hit.Covers(0)
		end = out.hit.End
		if out.hit.Start != start {
			out.hit = nil
		}
	}
	if end < need || need > 0 && out.hit == nil {
		defer out.release(w.store.Pins)
		return nil, &kv.NotStoredError{Stored: end, Needed: w.cover[0].start, Reason: out.why}
	}
	return out, nil
}

// older are the rows of the record that group g of block i has. It fails if that was replaced since old was looked up: nothing kept
// its bytes until there was a lease.
func (w *Put) older(i, g int, old index.Entry) *stored {
	start, end := w.Chain.Block(i)
	h := &prefix.Hit{
		Key: w.Chain.Key(i), Parent: w.Chain.Parent(i), Scope: w.Chain.Scope(i), Start: start, End: end,
		Groups: make([]prefix.Group, len(w.model.Desc.Groups)),
	}
	h.Groups[g] = prefix.Group{Loc: old.Loc, RowFirst: int(old.RowFirst), RowCount: int(old.RowCount)}
	out := &stored{hit: h}
	out.from, out.to = h.Covers(g)
	if still, err := w.store.Record(&out.lease, h.Key, uint8(g), old.Loc); err != nil {
		out.err = err
	} else if !still {
		out.err = w.gone(i)
	}
	return out
}

// join returns rows with group g's rows [from, to) of the caller between what s has before and behind them, and the range
// of all. Where s does not reach, or cannot be read, that is the caller's alone.
func (w *Put) join(s *stored, g int, rows kv.Rows, from, to int) (kv.Rows, int, int) {
	if s == nil || s.hit == nil || s.to < from || s.from > to {
		return rows, from, to
	}
	first, last := min(s.from, from), max(s.to, to)
	d := w.model.Desc
	out := append(kv.Rows(nil), rows...)
	for _, t := range d.GroupTensors(g) {
		tensor := d.Tensors[t]
		out[t] = kv.TensorRows{First: first}
		for _, part := range [][2]int{{first, from}, {from, to}, {to, last}} {
			a, b := part[0], part[1]
			switch {
			case a >= b:
			case a == from && b == to:
				out[t].Pieces = append(out[t].Pieces, rows[t].Slice(tensor, a, b).Pieces...)
			default:
				out[t].Pieces = append(out[t].Pieces, kv.Packed(a, b-a, make([]byte, (b-a)*tensor.RowBytes())).Pieces...)
			}
		}
	}
	for _, part := range [][2]int{{first, from}, {to, last}} {
		if part[0] >= part[1] {
			continue
		}
		dst := make(kv.Rows, len(d.Tensors))
		for _, t := range d.GroupTensors(g) {
			dst[t] = out[t].Slice(d.Tensors[t], part[0], part[1])
		}
		if s.err = w.store.Rows.Rows(&w.model.Model, &w.prompt, s.hit, g, dst, part[0], part[1]); s.err != nil {
			return rows, from, to
		}
	}
	return out, first, last
}
