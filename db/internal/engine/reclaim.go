package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/segments"
)

// waited is a lock that knows whether somebody waits for it.
type waited struct {
	lock.Mutex[lock.Checkpoint]
	waiting atomic.Int32
}

// Lock takes it.
func (m *waited) Lock() {
	m.waiting.Add(1)
	m.Mutex.Lock()
	m.waiting.Add(-1)
}

// reclaim destroys the bytes of doomed records that no lease can see: the frames that doomed them are made durable
// first, then headers are zeroed, pages punched, and dead segments unlinked. Who waits for ckptMu has it in between.
func (e *Engine) reclaim(ctx context.Context) error {
	_, err := e.reclaimAll(ctx)
	return err
}

// Left is what a reclaim had to leave, because a lease can see it, or somebody walks over its segment.
type Left struct {
	Records  int
	Bytes    int64 // of the records
	Segments int   // that wait to be unlinked
	Leases   int   // that are open
}

// reclaimAll is reclaim, and says what is left. What no lease keeps any more when it is counted is tried once more.
func (e *Engine) reclaimAll(ctx context.Context) (left Left, err error) {
	for {
		before := left
		more, err := e.reclaimAndCount(ctx, &left)
		if ctx.Err() != nil {
			e.Signal() // the worker does the rest
		}
		released := left != before && left.Records+left.Segments > 0 && left.Leases == 0 && e.Segments.Ripe()
		if err != nil || !more && !released {
			return left, err
		}
	}
}

// reclaimAndCount is one share of reclaimAll. It counts before others have ckptMu: what they queue, and leave, is not the caller's.
func (e *Engine) reclaimAndCount(ctx context.Context, left *Left) (more bool, err error) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	more, err = e.reclaimLocked(ctx, e.givingWay())
	left.Records, left.Bytes = e.Segments.Pending()
	left.Segments = e.Segments.PendingUnlinks()
	left.Leases, _ = e.Segments.Leases()
	return more, err
}

// reclaimFor is reclaim for who waits for so many bytes: more says that something is left when these have come back. Where holes cannot be
// punched, no record gives anything back by itself: there it is all done at once.
func (e *Engine) reclaimFor(ctx context.Context, bytes int64) (more bool, err error) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.reclaimLocked(ctx, func(records int, done int64) bool {
		return records >= reclaimShare && done >= bytes && !e.Segments.Solid()
	})
}

// reclaimShare is how many records are destroyed at least before somebody else has ckptMu: each share takes an fsync.
const reclaimShare = 64

// givingWay ends a share when somebody waits for ckptMu, and rests while restores are at work.
func (e *Engine) givingWay() func(records int, bytes int64) bool {
	pace := e.workers.PutPace()
	return func(records int, _ int64) bool {
		if e.ckptMu.waiting.Load() > 0 {
			return records >= reclaimShare
		}
		pace.Rest()
		return false
	}
}

// reclaimRest is reclaim for who holds ckptMu and goes on with something else: the worker does what is left when somebody waits for that.
func (e *Engine) reclaimRest(ctx context.Context) error {
	more, err := e.reclaimLocked(ctx, e.givingWay())
	if more {
		e.Signal()
	}
	return err
}

func (e *Engine) reclaimLocked(ctx context.Context, enough func(records int, bytes int64) bool) (more bool, err error) {
	return e.reclaimAfter(ctx, enough, func(behind bool) error {
		if behind {
			return e.allDurable()
		}
		return e.wal.Sync(e.wal.LastLSN())
	})
}

// reclaimAfter is reclaim where durable makes the frames that doomed the records durable, and everything else if some wait for a barrier.
// enough is that of [segments.Set.Reclaim]. The caller holds ckptMu.
func (e *Engine) reclaimAfter(ctx context.Context, enough func(records int, bytes int64) bool, durable func(behind bool) error) (more bool, err error) {
	dying := e.Catalog.Take()
	fresh := len(dying.Records) > 0 || len(dying.Unseen) > 0 || len(dying.Segments) > 0 || len(dying.Emptied) > 0
	if n, _ := e.Segments.Pending(); !fresh && n == 0 && e.Segments.PendingUnlinks() == 0 {
		return false, nil
	}
	err = func() error {
		if !fresh { // the others were durable when they were queued
			return nil
		}
		if dying.Behind { // the old places go only when the new ones are safe, those of an earlier process included
			if err := e.sealLeftovers(ctx); err != nil {
				return err
			}
		}
		return durable(dying.Behind)
	}()
	if err != nil {
		e.Catalog.GiveBack(dying)
		return false, err
	}
	e.Segments.Destroy(dying.Records)
	e.Segments.DestroyUnseen(dying.Unseen)
	for _, id := range dying.Segments {
		e.Segments.Unlink(id, false)
	}
	for _, id := range dying.Emptied {
		e.Segments.Unlink(id, true)
	}
	done, more, err := e.Segments.Reclaim(ctx, enough)
	e.Catalog.Destroyed(done)
	if err == nil {
		e.Catalog.DropUnlinked(e.Segments.Has)
	}
	e.Measure()
	if err != nil && ctx.Err() == nil && e.Segments.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNotDestroyed, err)
	}
	return more && len(done) > 0, err
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

// sealLeftover cuts a segment that an earlier process left, and removes one that was never born. What could not be read when the
// segment was swept, and can be now, is swept first.
func (e *Engine) sealLeftover(ctx context.Context, u *recovery.Leftover) error {
	err := e.Segments.SealRecovered(u.ID, u.End)
	if !errors.Is(err, segments.ErrBehind) {
		return err
	}
	v := e.View()
	defer v.Release()
	again, unnamed, err := recovery.Sweep(ctx, e.Segments, v, u.ID, u.From, e.log)
	if err != nil {
		return err
	}
	e.Catalog.BuryAt(unnamed...)
	*u = again
	return e.Segments.SealRecovered(u.ID, u.End)
}

// emptySegments returns the finished segments in which nothing lives, but for files that have no more of a segment than the name. The caller holds the publish gate, so that no record waits
// to be published.
func (e *Engine) emptySegments() []uint64 {
	v := e.View()
	defer v.Release()
	var ids []uint64
	for _, id := range e.Segments.Finished() {
		if v.Segment(id).Records == 0 && e.Segments.Ours(id) && e.Segments.Finish(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
