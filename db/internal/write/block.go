package write

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Block makes sure that every group of block i that the caller has rows for is stored.
func (w *Put) Block(ctx context.Context, i int) error {
	if err := w.planBlock(ctx, i); err != nil || w.plannedBytes < flushBytes {
		return err
	}
	return w.flush(ctx) // which may evict: no lease of this put is open
}

// planBlock plans the records of block i that are not stored.
func (w *Put) planBlock(ctx context.Context, i int) error {
	d := w.model.Desc
	key := w.Chain.Key(i)
	start, end := w.Chain.Block(i)
	v := w.store.Search.Index.View()
	defer v.Release()
	base, stored, err := v.Get(key, 0)
	if err != nil {
		return err
	}
	if stored = stored && base.Flags&index.FlagDamaged == 0; stored { // what is below one that is damaged stays
		if stored, err = w.store.Judge.Whole(key, 0); err != nil {
			return err
		}
	}
	head, err := w.head(ctx, i, stored)
	if err != nil {
		return err
	}
	defer head.release(w.store.Pins)
	if stored {
		w.Result.Reused++
		if w.rest(key); !w.idle() && !w.lend(key) { // another put was faster with what lies below the blocks of this one
			return w.gone(i)
		}
	} else if err := w.base(ctx, i, head); err != nil {
		return err
	}
	for g := 1; g < len(d.Groups); g++ {
		c := w.cover[g]
		var from, to int
		switch d.Groups[g].Kind {
		case kv.Window:
			from, to = max(c.start, start), min(c.end, end)
			if from >= to && head != nil && c.start >= end { // all of a new block's rows come from the store
				from, to = end, end
			} else if from >= to {
				continue
			}
		case kv.StateAt:
			if c.end < 0 || c.start != end {
				if i == w.Chain.Len()-1 && c.end >= 0 && c.start > start {
					return fmt.Errorf("%w: the state of group %d is at position %d, the rows end at %d", kv.ErrRows, g, c.start, end)
				}
				continue
			}
			from, to = start, end
		}
		old, ok, err := v.Get(key, uint8(g))
		if err != nil {
			return err
		}
		if ok && old.Flags&index.FlagDamaged == 0 && covers(old, uint16(from-start), uint16(to-start)) {
			whole, err := w.store.Judge.Whole(key, uint8(g))
			if err != nil {
				return err
			}
			if whole {
				w.Result.Reused++
				continue
			}
			old.Flags |= index.FlagDamaged
		}
		rows := w.rows
		if d.Groups[g].Kind == kv.Window {
			if ok && old.Flags&index.FlagDamaged == 0 {
				if w.met == nil {
					w.met = map[index.Loc]bool{}
				}
				w.met[old.Loc] = true
				o := w.older(i, g, old)
				if o.err != nil {
					o.release(w.store.Pins)
					return o.err
				}
				apart := o.from > to || o.to < from // one record has no gap
				if !apart {
					rows, from, to = w.join(o, g, rows, from, to)
				}
				o.release(w.store.Pins)
				if read.Passing(o.err) { // what it has would go
					return o.err
				}
				if apart && o.to > to {
					continue // what later prompts look back at is its end
				}
			}
			first := from
			if rows, from, to = w.join(head.window(g), g, rows, from, to); from == to {
				continue
			}
			if from < first && !w.lend(head.hit.Key) {
				return w.gone(i)
			}
		}
		w.write(i, g, from, to, rows)
	}
	return nil
}

// base writes the All record of block i.
func (w *Put) base(ctx context.Context, i int, head *stored) error {
	start, end := w.Chain.Block(i)
	rows := w.rows
	if from := min(w.cover[0].start, end); from > start {
		var got int
		if rows, got, _ = w.join(head, 0, rows, from, end); got > start {
			return &kv.NotStoredError{Stored: start, Needed: from, Reason: head.reason(start)}
		}
		if !w.lend(head.hit.Key) {
			return w.gone(i)
		}
	}
	if w.idle() {
		if err := w.hold(i); err != nil {
			return err
		}
	}
	w.write(i, 0, start, end, rows)
	return nil
}
