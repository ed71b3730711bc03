package space

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// mark is a share of what a limit leaves beside what is pinned, and that: of one block, one.
func mark(share float64, limit, pinned int64) int64 {
	pinned = min(pinned, limit)
	return pinned + int64(math.Ceil(share*float64(limit-pinned)))
}

// byteMark is the mark of the bytes of blocks. Where much is pinned, the high one may lie behind what puts can reach, which the store's other files
// leave: then both are shares of that, or puts would have to evict for themselves, and wait for it.
func (sp *Space) byteMark(share float64, pinned int64) int64 {
	limit := sp.Budget.Bytes()
	if reach := limit - sp.Budget.ReserveBytes() - sp.Budget.IndexBytes(); pinned > 0 && mark(sp.HighWater, limit, pinned) > reach {
		limit = max(0, reach)
	}
	return mark(share, limit, pinned)
}

// pinsOutdated reports whether pins have changed since they were counted, and may be counted again for that alone. Counting takes some microseconds for each block
// that they keep, and who sets a pin each turn must not have the worker count all the time.
func (sp *Space) pinsOutdated() bool {
	return sp.Ledger.Catalog.PinChanges() != sp.pinned.asOf.Load() && int64(time.Since(begun)) >= sp.pinned.again.Load()
}

// begun is the beginning of pinned.again's clock, which does not stand still or go back.
var begun = time.Now()

// countPinned counts what pinned refs keep, if these have changed since the last time: their blocks, and all that these continue. The caller holds
// no lock.
func (sp *Space) countPinned() error {
	asOf, start := sp.Ledger.Catalog.PinChanges(), time.Now()
	if asOf == sp.pinned.asOf.Load() {
		return nil
	}
	v := sp.Ledger.View()
	defer v.Release()
	var bytes int64
	seen := map[kv.Key]struct{}{}
	for _, k := range sp.Ledger.Catalog.PinnedBlocks() {
		for k != (kv.Key{}) {
			if _, ok := seen[k]; ok {
				break
			}
			x, ok, err := v.Get(k, 0)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			seen[k] = struct{}{}
			err = v.Groups(k, func(x index.Entry) bool {
				bytes += x.Loc.Length
				return true
			})
			if err != nil {
				return err
			}
			k = oplog.Before(x)
		}
	}
	sp.pinned.bytes.Store(bytes)
	sp.pinned.blocks.Store(int64(len(seen)))
	sp.pinned.asOf.Store(asOf)
	sp.pinned.again.Store(int64(time.Since(begun) + min(time.Second, 20*time.Since(start))))
	return nil
}

// AboveHighWater reports whether what is stored is above the high-water mark, or may be: pins have changed, and the worker counts them before it
// evicts.
func (sp *Space) AboveHighWater() bool {
	return sp.above(0, 0) && (sp.pinsOutdated() || sp.aboveCounted())
}

// aboveCounted reports whether what is stored is above the high-water mark, by the pins that were counted last.
func (sp *Space) aboveCounted() bool {
	return sp.above(sp.pinned.bytes.Load(), sp.pinned.blocks.Load())
}

// above reports whether what is stored is above the high-water mark if so much is pinned. What is dead does not count, because its pages are
// punched: where they cannot be, all that the files occupy does.
func (sp *Space) above(bytes, blocks int64) bool {
	if sp.HighWater >= 1 {
		return false // puts evict what they need
	}
	n := sp.Ledger.Counts()
	if sp.Ledger.Segments.Solid() {
		sp.Budget.MeasureOnce()
		n.Bytes = sp.Budget.Used() - sp.Ledger.Segments.Held()
	}
	return n.Bytes > sp.byteMark(sp.HighWater, bytes) || sp.Budget.MaxBlocks() > 0 && n.Blocks > mark(sp.HighWater, sp.Budget.MaxBlocks(), blocks)
}

// EvictToLowWater evicts down to the low-water mark if what is stored is above the high one.
func (sp *Space) EvictToLowWater(ctx context.Context) error {
	if !sp.AboveHighWater() {
		return nil
	}
	if err := sp.countPinned(); err != nil || !sp.aboveCounted() {
		return err
	}
	if sp.Ledger.Segments.Solid() {
		if err := sp.Checkpoints.Reclaim(ctx); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) {
			return err
		}
	}
	if _, err := sp.Evictor.Until(ctx, sp.aboveLowWater); err != nil {
		return err
	}
	undone := sp.Checkpoints.Reclaim(ctx)
	if undone != nil && !errors.Is(undone, checkpoint.ErrNotDestroyed) || !sp.Ledger.Segments.Solid() {
		return undone
	}
	if over := sp.Budget.Measure() - sp.Ledger.Segments.Held() - sp.byteMark(sp.HighWater, sp.pinned.bytes.Load()); over > 0 {
		_, err := sp.rewriteDead(ctx, over)
		return errors.Join(undone, err)
	}
	return undone
}

// aboveLowWater is how much is above the low-water mark. The caller holds the lock of the checkpoints.
func (sp *Space) aboveLowWater() budget.Lack {
	n := sp.Ledger.Counts()
	if sp.Ledger.Segments.Solid() {
		coming := sp.Budget.Coming()
		_, dead := sp.deadSegments() // comes back by rewriting, not by evicting more
		n.Bytes = sp.Budget.Used() - coming - max(0, dead-(coming-sp.Ledger.Segments.Held()))
	}
	goal := budget.Lack{Bytes: n.Bytes - sp.byteMark(sp.LowWater, sp.pinned.bytes.Load())}
	if sp.Budget.MaxBlocks() > 0 {
		goal.Blocks = n.Blocks - mark(sp.LowWater, sp.Budget.MaxBlocks(), sp.pinned.blocks.Load())
	}
	return goal
}
