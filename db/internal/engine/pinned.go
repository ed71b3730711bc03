package engine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// pinned is what pinned refs keep: all else shares what that leaves of the budget, and the water marks are shares of the rest. Measured over all
// of the budget, pins above the low one would have everything else go whenever the high one is crossed.
type pinned struct {
	asOf          atomic.Uint64 // the catalog's PinChanges when it was counted
	again         atomic.Int64  // when it may be counted again, in nanoseconds
	bytes, blocks atomic.Int64
}

// mark is a share of what a limit leaves beside what is pinned, and that: of one block, one.
func mark(share float64, limit, pinned int64) int64 {
	pinned = min(pinned, limit)
	return pinned + int64(math.Ceil(share*float64(limit-pinned)))
}

// byteMark is the mark of the bytes of blocks. Where much is pinned, the high one may lie behind what puts can reach, which the store's other files
// leave: then both are shares of that, or puts would have to evict for themselves, and wait for it.
func (e *Engine) byteMark(share float64, pinned int64) int64 {
	limit := e.o.Budget
	if reach := limit - e.reserveBytes() - e.indexBytes.Load(); pinned > 0 && mark(e.o.HighWater, limit, pinned) > reach {
		limit = max(0, reach)
	}
	return mark(share, limit, pinned)
}

// pinsOutdated reports whether pins have changed since they were counted, and may be counted again for that alone. Counting takes some microseconds for each block
// that they keep, and who sets a pin each turn must not have the worker count all the time.
func (e *Engine) pinsOutdated() bool {
	return e.Catalog.PinChanges() != e.pinned.asOf.Load() && int64(time.Since(begun)) >= e.pinned.again.Load()
}

// begun is the beginning of pinned.again's clock, which does not stand still or go back.
var begun = time.Now()

// countPinned counts what pinned refs keep, if these have changed since the last time: their blocks, and all that these continue. The caller holds
// no lock.
func (e *Engine) countPinned() error {
	asOf, start := e.Catalog.PinChanges(), time.Now()
	if asOf == e.pinned.asOf.Load() {
		return nil
	}
	v := e.View()
	defer v.Release()
	var bytes int64
	seen := map[kv.Key]struct{}{}
	for _, k := range e.Catalog.PinnedBlocks() {
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
			k = before(x)
		}
	}
	e.pinned.bytes.Store(bytes)
	e.pinned.blocks.Store(int64(len(seen)))
	e.pinned.asOf.Store(asOf)
	e.pinned.again.Store(int64(time.Since(begun) + min(time.Second, 20*time.Since(start))))
	return nil
}
