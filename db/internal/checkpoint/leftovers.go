package checkpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/segments"
)

// Leftovers are the segments that an earlier process did not seal, and that are not sealed yet.
func (k *Checkpoints) Leftovers() []recovery.Leftover {
	k.Lock()
	defer k.Unlock()
	return slices.Clone(k.unsealed)
}

// Unsealed reports whether there are such segments. The caller has the lock.
func (k *Checkpoints) Unsealed() bool { return len(k.unsealed) > 0 }

// SealLeftovers cuts the segments that an earlier process was writing to behind their last records.
func (k *Checkpoints) SealLeftovers(ctx context.Context) error {
	for len(k.unsealed) > 0 {
		err := k.sealLeftover(ctx, &k.unsealed[0])
		if err != nil && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, segments.ErrMissing) {
			return err
		}
		k.unsealed = k.unsealed[1:]
	}
	return nil
}

// sealLeftover cuts a segment that an earlier process left, and removes one that was never born. What could not be read when the
// segment was swept, and can be now, is swept first.
func (k *Checkpoints) sealLeftover(ctx context.Context, u *recovery.Leftover) error {
	err := k.Ledger.Segments.SealRecovered(u.ID, u.End)
	if !errors.Is(err, segments.ErrBehind) {
		return err
	}
	v := k.Ledger.View()
	defer v.Release()
	again, unnamed, err := recovery.Sweep(ctx, k.Ledger.Segments, v, u.ID, u.From, k.Ledger.Logger)
	if err != nil {
		return err
	}
	k.Ledger.Catalog.BuryAt(unnamed...)
	*u = again
	return k.Ledger.Segments.SealRecovered(u.ID, u.End)
}

// Empty returns the finished segments in which nothing lives, but for files that have no more of a segment than the name. The caller holds the publish gate, so that no record waits
// to be published.
func (k *Checkpoints) Empty() []uint64 {
	v := k.Ledger.View()
	defer v.Release()
	var ids []uint64
	for _, id := range k.Ledger.Segments.Finished() {
		if v.Segment(id).Records == 0 && k.Ledger.Segments.Ours(id) && k.Ledger.Segments.Finish(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// OpenEnds are the ends of the segments that this process has begun and not sealed, and of those that an earlier one left and in
// which nothing lives: they may have no header, and a power cut may bring them back after they are unlinked. The caller
// holds the publish gate and the lock.
func (k *Checkpoints) OpenEnds() map[uint64]int64 {
	ends := k.Ledger.Segments.OpenEnds()
	v := k.Ledger.View()
	defer v.Release()
	for _, u := range k.unsealed {
		if u.From == 0 && v.Segment(u.ID).Records == 0 {
			ends[u.ID] = 0
		}
	}
	return ends
}

// AsOpened reports whether nothing was written or used since the store was opened, and nothing was left to do then.
func (k *Checkpoints) AsOpened() bool {
	k.Lock()
	defer k.Unlock()
	l := k.Ledger
	waiting, _ := l.Catalog.Waiting()
	return !l.WAL.Begun() && !l.Dirty.Load() && l.Recency().None() && len(k.unsealed) == 0 && !l.Segments.Uncut() && waiting == 0
}
