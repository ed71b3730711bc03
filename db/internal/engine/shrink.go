package engine

import (
	"context"

	"github.com/dormousekv/dormouse/segments"
)

// Shrink evicts, coldest first, until the files occupy bytes or less, and returns what they occupy then and how many blocks went.
func (e *Engine) Shrink(ctx context.Context, bytes int64) (used int64, evicted int, err error) {
	if err := e.Poisoned(); err != nil {
		return 0, 0, err
	}
	most := e.Counts().Blocks // those that are put meanwhile are no reason to go on
	for used := e.Measure(); used > bytes && int64(evicted) <= most; {
		n, err := e.evict(ctx, func() evictGoal {
			_, waiting := e.Catalog.Waiting()
			return evictGoal{bytes: e.space.used() - e.held() - waiting - bytes} // what matches keep comes back, too
		})
		evicted += n
		if err != nil {
			return e.Measure(), evicted, err
		}
		if err := e.Checkpoint(ctx); err != nil {
			return e.Measure(), evicted, err
		}
		if used = e.Measure(); n == 0 {
			break
		}
	}
	if used := e.Measure(); used > bytes {
		if err := e.compactIndex(ctx); err != nil {
			return used, evicted, err
		}
	}
	return e.Measure(), evicted, nil
}

// Trim gives back memory: maps, handles, pools, pages read ahead, and by a checkpoint the part of the index that is not in index.db yet. It
// returns how many segments keep their maps or files, because somebody reads or writes them.
//
// Trim evicts nothing. A checkpoint evicts where killed processes have left files of the log in a full store: there the worker makes it.
func (e *Engine) Trim(ctx context.Context) (held int, err error) {
	e.again.Drop()
	if e.wal != nil && e.crowded.Load() <= 1 {
		err = e.Checkpoint(ctx)
	}
	held = e.Segments.Trim()
	e.Index.Trim()
	e.ring.Free()
	segments.GiveBack(0)
	return held, err
}
