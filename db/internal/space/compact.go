package space

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Compact gives space back. A segment that cannot be read or changed just now is left as it is, and is the error after the others are done.
func (sp *Space) Compact(ctx context.Context, o CompactOptions) (Compacted, error) {
	if err := sp.Ledger.Poisoned(); err != nil {
		return Compacted{}, err
	}
	if err := ctx.Err(); err != nil {
		return Compacted{}, err
	}
	if o.LiveShare == 0 {
		o.LiveShare = 0.5
	}
	out := Compacted{Before: sp.Budget.Measure()}
	if !sp.Checkpoints.AsOpened() { // what waits to be destroyed or sealed is no segment's gain
		if err := sp.Checkpoint(ctx); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) {
			return out, err
		}
	}
	victims := sp.worth(o)
	if len(victims) == 0 && len(sp.Checkpoints.Empty()) == 0 && !sp.indexWorth() {
		out.After = sp.Budget.Measure()
		return out, nil
	}
	var err error
	if len(victims) > 0 {
		pace := sp.Workers.HousePace()
		err = sp.rewrite(ctx, func(s segments.Info, _ int64) bool { return victims[s.ID] }, o.Progress, &pace, &out)
	}
	// One checkpoint makes the moves durable and destroys the old places; the next finds the segments empty. What cannot be moved or
	// destroyed keeps nothing else from being done. It is said in the end, if it still stands.
	var undone error
	for range 2 {
		if undone == nil || errors.Is(undone, checkpoint.ErrNotDestroyed) {
			undone = sp.Checkpoint(ctx)
		}
	}
	if (err == nil || errors.Is(err, ErrNotMoved)) && (undone == nil || errors.Is(undone, checkpoint.ErrNotDestroyed)) {
		undone = errors.Join(undone, sp.shrinkIndex(ctx))
	}
	out.After = sp.Budget.Measure()
	return out, errors.Join(err, undone)
}

// compactIndex rewrites index.db without its free pages.
func (sp *Space) compactIndex(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sp.Checkpoints.Lock()
	defer sp.Checkpoints.Unlock()
	return sp.Ledger.Index.Compact()
}

// shrinkIndex is compactIndex, unless that gives nothing back.
func (sp *Space) shrinkIndex(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sp.Checkpoints.Lock()
	defer sp.Checkpoints.Unlock()
	return sp.Ledger.Index.Shrink()
}

// indexWorth reports whether enough of index.db is free to write it anew.
func (sp *Space) indexWorth() bool {
	return sp.Ledger.Index.FreeBytes() >= max(64<<10, sp.Budget.IndexBytes()/8)
}

// worth picks the segments that Compact rewrites: those that are mostly dead, and small ones where a model has several. Those of a model
// are rewritten together, unless that takes more than it gives.
func (sp *Space) worth(o CompactOptions) map[uint64]bool {
	type candidate struct {
		ids        []uint64
		bytes      int64 // alive
		now, begin int64 // allocated; where the first record lies
	}
	v := sp.Ledger.View()
	defer v.Release()
	small := map[kv.Fingerprint]int{}
	isSmall := func(s segments.Info) bool { return s.Size < min(sp.SegmentBytes, usualSegment)/4 }
	all := sp.Ledger.Segments.Segments()
	for _, s := range all {
		if !s.Active && isSmall(s) && v.Segment(s.ID).Records > 0 {
			small[s.Model]++
		}
	}
	models := map[kv.Fingerprint]*candidate{}
	for _, s := range all {
		live := v.Segment(s.ID)
		if s.Active || live.Records == 0 {
			continue
		}
		places := max(s.End, live.Bytes+s.Begin) - s.Begin // of records, dead or alive
		if s.End == 0 {                                    // it is not known where they end
			places = s.Size
		}
		mostlyDead := places > live.Bytes && float64(live.Bytes) < o.LiveShare*float64(places)
		if !o.All && !mostlyDead && (!isSmall(s) || small[s.Model] < 2) {
			continue
		}
		c := models[s.Model]
		if c == nil {
			c = &candidate{}
			models[s.Model] = c
		}
		c.ids = append(c.ids, s.ID)
		c.bytes += live.Bytes
		c.now += s.Allocated
		c.begin = max(c.begin, s.Begin)
	}
	victims := map[uint64]bool{}
	total := int64(0)
	for _, c := range models {
		files := c.bytes/sp.SegmentBytes + 1
		then := c.bytes + files*c.begin
		if !o.All && then > c.now+BlockBytes {
			continue
		}
		total += c.now - then
		for _, id := range c.ids {
			victims[id] = true
		}
	}
	if !o.All && total < o.Least {
		return nil
	}
	return victims
}

// BlockBytes is what files occupy a multiple of, on most file systems.
const BlockBytes = 4096
