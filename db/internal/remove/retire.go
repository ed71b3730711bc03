package remove

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Retire drops a model with its blocks and refs, and returns when that is durable.
func (r *Remover) Retire(ctx context.Context, fp kv.Fingerprint) error {
	r.Checkpoints.Lock() // so that nobody evicts for the room that this gives back
	defer r.Checkpoints.Unlock()
	lsn, err := r.retire(fp)
	if err != nil {
		return r.Ledger.GoneForGood(err, r.Ledger.Barrier)
	}
	if err := r.Ledger.Barrier(lsn); err != nil {
		return err
	}
	return r.Checkpoints.ReclaimRest(ctx)
}

// retire logs that a model is gone. The gate keeps puts of this model from adding segments meanwhile.
func (r *Remover) retire(fp kv.Fingerprint) (uint64, error) {
	l := r.Ledger
	l.Gate.Lock()
	defer l.Gate.Unlock()
	if l.Catalog.Model(fp) == nil {
		return 0, fmt.Errorf("%w: model %s", commit.ErrNotFound, fp)
	}
	c, err := l.Begin() // before segments are looked at, which may not be possible any more
	if err != nil {
		return 0, err
	}
	defer c.End()
	op := oplog.Retire{Model: fp}
	for _, s := range l.Segments.Segments() {
		if mine, err := r.holdsModel(s.ID, fp); err != nil {
			return 0, err
		} else if mine {
			op.Segments = append(op.Segments, s.ID)
		}
	}
	if err := recovery.RemoveModel(c.Index, fp, func(index.Entry) bool { return true }); err != nil {
		return 0, err
	}
	lsn, err := c.Commit(op)
	if err != nil {
		return 0, err
	}
	l.Segments.Forget(fp) // should the model come back, its records must not go to a file that is to be unlinked
	r.Filter.Removed(1 << 20)
	return lsn, nil
}

// holdsModel reports whether a segment is of that model: each is of one. Where its header is damaged, the index knows.
func (r *Remover) holdsModel(id uint64, fp kv.Fingerprint) (mine bool, err error) {
	d, err := r.Ledger.Segments.Descriptor(id)
	if err == nil {
		return d.Fingerprint() == fp, nil
	}
	if !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, segments.ErrMissing) {
		return false, err // too many open files, say: what is left out now keeps its tokens and rows
	}
	v := r.Ledger.View()
	defer v.Release()
	err = v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		mine = x.Loc.Segment == id && x.Model == fp
		return !mine
	})
	return mine, err
}
