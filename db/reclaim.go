package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/segments"
)

// reclaim destroys the bytes of doomed records that no lease can see: the frames that doomed them are made durable
// first, then headers are zeroed, pages punched, and dead segments unlinked.
func (e *engine) reclaim(ctx context.Context) error {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.reclaimLocked(ctx)
}

func (e *engine) reclaimLocked(ctx context.Context) error {
	return e.reclaimAfter(ctx, func(behind bool) error {
		if behind {
			return e.allDurable()
		}
		return e.wal.Sync(e.wal.LastLSN())
	})
}

// reclaimAfter is reclaim where durable makes the frames that doomed the records durable, and everything else if some wait for a barrier.
// The caller holds ckptMu.
func (e *engine) reclaimAfter(ctx context.Context, durable func(behind bool) error) error {
	dying := e.catalog.Take()
	n, _ := e.set.Pending()
	if len(dying.Records) == 0 && len(dying.Segments) == 0 && n == 0 {
		return nil
	}
	err := func() error {
		if dying.Behind { // the old places go only when the new ones are safe, those of an earlier process included
			if err := e.sealLeftovers(ctx); err != nil {
				return err
			}
		}
		return durable(dying.Behind)
	}()
	if err != nil {
		e.catalog.GiveBack(dying)
		return err
	}
	e.set.Destroy(dying.Records)
	for _, id := range dying.Segments {
		e.set.Unlink(id)
	}
	done, err := e.set.Reclaim(ctx)
	e.catalog.Destroyed(done)
	if err == nil {
		e.catalog.DropUnlinked(e.set.Has)
	}
	e.measure()
	if err != nil && ctx.Err() == nil && e.set.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNotDestroyed, err)
	}
	return err
}

// sealLeftovers writes the footers that an earlier process did not get to.
func (e *engine) sealLeftovers(ctx context.Context) error {
	for len(e.unsealed) > 0 {
		err := e.sealLeftover(ctx, &e.unsealed[0])
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, segments.ErrMissing) {
			return err
		}
		e.unsealed = e.unsealed[1:]
	}
	return nil
}

// emptySegments returns the finished segments in which nothing lives, but for files that have no more of a segment than the name. The caller holds the gate, so that no record waits
// to be published.
func (e *engine) emptySegments() []uint64 {
	v := e.view()
	defer v.Release()
	var ids []uint64
	for _, id := range e.set.Finished() {
		if v.Segment(id).Records == 0 && e.set.Ours(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
