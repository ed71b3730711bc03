package checkpoint

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotDestroyed says that something that is dead could not be destroyed. It will be tried again.
var ErrNotDestroyed = errors.New("not all that is dead could be destroyed")

// Reclaim destroys the bytes of dead records that no lease can see: the frames that removed them are made durable
// first, then headers are zeroed, pages punched, and dead segments unlinked. Who waits for the lock has it in between.
func (k *Checkpoints) Reclaim(ctx context.Context) error {
	_, err := k.ReclaimAll(ctx)
	return err
}

// Left is what a reclaim had to leave, because a lease can see it, or somebody walks over its segment.
type Left struct {
	Records  int
	Bytes    int64 // of the records
	Segments int   // that wait to be unlinked
	Leases   int   // that are open
}

// ReclaimAll is Reclaim, and says what is left. What no lease keeps any more when it is counted is tried once more.
func (k *Checkpoints) ReclaimAll(ctx context.Context) (left Left, err error) {
	for {
		before := left
		more, err := k.reclaimAndCount(ctx, &left)
		if ctx.Err() != nil {
			k.Wake() // the worker does the rest
		}
		released := left != before && left.Records+left.Segments > 0 && left.Leases == 0 && k.Ledger.Segments.Ripe()
		if err != nil || !more && !released {
			return left, err
		}
	}
}

// reclaimAndCount is one share of ReclaimAll. It counts before others have the lock: what they queue, and leave, is not the caller's.
func (k *Checkpoints) reclaimAndCount(ctx context.Context, left *Left) (more bool, err error) {
	k.Lock()
	defer k.Unlock()
	more, err = k.ReclaimLocked(ctx, k.givingWay())
	left.Records, left.Bytes = k.Ledger.Segments.Pending()
	left.Segments = k.Ledger.Segments.PendingUnlinks()
	left.Leases, _ = k.Ledger.Segments.Leases()
	return more, err
}

// ReclaimFor is Reclaim for who waits for so many bytes: more says that something is left when these have come back. Where holes cannot be
// punched, no record gives anything back by itself: there it is all done at once.
func (k *Checkpoints) ReclaimFor(ctx context.Context, bytes int64) (more bool, err error) {
	k.Lock()
	defer k.Unlock()
	return k.ReclaimLocked(ctx, func(records int, done int64) bool {
		return records >= reclaimShare && done >= bytes && !k.Ledger.Segments.Solid()
	})
}

// reclaimShare is how many records are destroyed at least before somebody else has the lock: each share takes an fsync.
const reclaimShare = 64

// givingWay ends a share when somebody waits for the lock, and rests while restores are at work.
func (k *Checkpoints) givingWay() func(records int, bytes int64) bool {
	pace := k.Workers.PutPace()
	return func(records int, _ int64) bool {
		if k.waited() {
			return records >= reclaimShare
		}
		pace.Rest()
		return false
	}
}

// ReclaimRest is Reclaim for who holds the lock and goes on with something else: the worker does what is left when somebody waits for that.
func (k *Checkpoints) ReclaimRest(ctx context.Context) error {
	more, err := k.ReclaimLocked(ctx, k.givingWay())
	if more {
		k.Wake()
	}
	return err
}

func (k *Checkpoints) ReclaimLocked(ctx context.Context, enough func(records int, bytes int64) bool) (more bool, err error) {
	return k.ReclaimAfter(ctx, enough, func(behind bool) error {
		if behind {
			return k.Ledger.AllDurable()
		}
		return k.Ledger.WAL.Sync(k.Ledger.WAL.LastLSN())
	})
}

// ReclaimAfter is Reclaim where durable makes the frames that removed the records durable, and everything else if some wait for a barrier.
// enough is that of [segments.Set.Reclaim]. The caller holds the lock.
func (k *Checkpoints) ReclaimAfter(ctx context.Context, enough func(records int, bytes int64) bool, durable func(behind bool) error) (more bool, err error) {
	dying := k.Ledger.Catalog.Take()
	fresh := len(dying.Records) > 0 || len(dying.Unseen) > 0 || len(dying.Segments) > 0 || len(dying.Emptied) > 0
	if n, _ := k.Ledger.Segments.Pending(); !fresh && n == 0 && k.Ledger.Segments.PendingUnlinks() == 0 {
		return false, nil
	}
	err = func() error {
		if !fresh { // the others were durable when they were queued
			return nil
		}
		if dying.Behind { // the old places go only when the new ones are safe, those of an earlier process included
			if err := k.SealLeftovers(ctx); err != nil {
				return err
			}
		}
		return durable(dying.Behind)
	}()
	if err != nil {
		k.Ledger.Catalog.GiveBack(dying)
		return false, err
	}
	k.Ledger.Segments.Destroy(dying.Records)
	k.Ledger.Segments.DestroyUnseen(dying.Unseen)
	for _, id := range dying.Segments {
		k.Ledger.Segments.Unlink(id, false)
	}
	for _, id := range dying.Emptied {
		k.Ledger.Segments.Unlink(id, true)
	}
	done, more, err := k.Ledger.Segments.Reclaim(ctx, enough)
	k.Ledger.Catalog.Destroyed(done)
	if err == nil {
		k.Ledger.Catalog.DropUnlinked(k.Ledger.Segments.Has)
	}
	k.Budget.Measure()
	if err != nil && ctx.Err() == nil && k.Ledger.Segments.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNotDestroyed, err)
	}
	return more && len(done) > 0, err
}
