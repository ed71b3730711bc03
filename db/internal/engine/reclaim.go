package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/segments"
)

// reclaim destroys the bytes of doomed records that no lease can see: the frames that doomed them are made durable
// first, then headers are zeroed, pages punched, and dead segments unlinked.
func (e *Engine) reclaim(ctx context.Context) error {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.reclaimLocked(ctx)
}

func (e *Engine) reclaimLocked(ctx context.Context) error {
	return e.reclaimAfter(ctx, func(behind bool) error {
		if behind {
			return e.allDurable()
		}
		return e.wal.Sync(e.wal.LastLSN())
	})
}

// reclaimAfter is reclaim where durable makes the frames that doomed the records durable, and everything else if some wait for a barrier.
// The caller holds ckptMu.
func (e *Engine) reclaimAfter(ctx context.Context, durable func(behind bool) error) error {
	dying := e.Catalog.Take()
	n, _ := e.Segments.Pending()
	if len(dying.Records) == 0 && len(dying.Unseen) == 0 && len(dying.Segments) == 0 && len(dying.Emptied) == 0 && n == 0 {
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
		e.Catalog.GiveBack(dying)
		return err
	}
	e.Segments.Destroy(dying.Records)
	e.Segments.DestroyUnseen(dying.Unseen)
	for _, id := range dying.Segments {
		e.Segments.Unlink(id, false)
	}
	for _, id := range dying.Emptied {
		e.Segments.Unlink(id, true)
	}
	pace := e.workers.PutPace() // a put waits for it, in a full store
	done, err := e.Segments.Reclaim(ctx, pace.Rest)
	e.Catalog.Destroyed(done)
	if err == nil {
		e.Catalog.DropUnlinked(e.Segments.Has)
	}
	e.Measure()
	if err != nil && ctx.Err() == nil && e.Segments.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNotDestroyed, err)
	}
	return err
}

// sealLeftovers cuts the segments that an earlier process was writing to behind their last records.
func (e *Engine) sealLeftovers(ctx context.Context) error {
	for len(e.unsealed) > 0 {
		err := e.sealLeftover(ctx, &e.unsealed[0])
		if err != nil && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, segments.ErrMissing) {
			return err
		}
		e.unsealed = e.unsealed[1:]
	}
	return nil
}

// emptySegments returns the finished segments in which nothing lives, but for files that have no more of a segment than the name. The caller holds the publish gate, so that no record waits
// to be published.
func (e *Engine) emptySegments() []uint64 {
	v := e.View()
	defer v.Release()
	var ids []uint64
	for _, id := range e.Segments.Finished() {
		if v.Segment(id).Records == 0 && e.Segments.Ours(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
