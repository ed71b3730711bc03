package engine

import (
	"context"

	"github.com/dormousekv/dormouse/segments"
)

// Shrink evicts, coldest first, until the files occupy bytes or less, and returns what they occupy then.
func (e *Engine) Shrink(ctx context.Context, bytes int64) (int64, error) {
	if err := e.Poisoned(); err != nil {
		return 0, err
	}
	for used := e.Measure(); used > bytes; {
		n, err := e.evict(ctx, func() evictGoal { return evictGoal{bytes: e.space.used() - e.coming() - bytes} })
		if err != nil {
			return e.Measure(), err
		}
		if err := e.Checkpoint(ctx); err != nil {
			return e.Measure(), err
		}
		if used = e.Measure(); n == 0 {
			break
		}
	}
	if used := e.Measure(); used > bytes {
		if err := e.compactIndex(ctx); err != nil {
			return used, err
		}
	}
	return e.Measure(), nil
}

// Trim drops maps, pools and pages read ahead, and makes a checkpoint.
func (e *Engine) Trim(ctx context.Context) (err error) {
	if e.wal != nil {
		err = e.Checkpoint(ctx)
	}
	e.Segments.Trim()
	segments.GiveBack(0)
	return err
}
