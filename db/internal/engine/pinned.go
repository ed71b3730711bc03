package engine

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// pinned is what pinned refs keep: all else shares what that leaves of the budget, and the water marks are shares of the rest. Measured over all
// of the budget, pins above the low one would have everything else go whenever the high one is crossed.
type pinned struct {
	asOf          atomic.Uint64 // the catalog's PinChanges when it was counted
	bytes, blocks atomic.Int64
}

// mark is a share of what a limit leaves beside what is pinned, and that.
func mark(share float64, limit, pinned int64) int64 {
	pinned = min(pinned, limit)
	return pinned + int64(share*float64(limit-pinned))
}

// countPinned counts what pinned refs keep, if these have changed since the last time: their blocks, and all that these continue. The caller holds
// no lock.
func (e *Engine) countPinned() error {
	asOf := e.Catalog.PinChanges()
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
	return nil
}
