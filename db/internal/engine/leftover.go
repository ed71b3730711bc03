package engine

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/segments"
)

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
