package space

import (
	"context"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/segments"
)

// Inside is the making of room as the store's tests see it, step by step.
type Inside struct{ sp *Space }

// Inside is for tests.
func (sp *Space) Inside() Inside { return Inside{sp} }

// Move copies a record to its model's active segment.
func (i Inside) Move(ctx context.Context, x index.Entry) (bool, error) { return i.sp.move(ctx, x) }

// Rewrite moves the live records out of the segments that are worth it.
func (i Inside) Rewrite(ctx context.Context, worth func(s segments.Info, live int64) bool, out *Compacted) error {
	pace := i.sp.Workers.HousePace()
	return i.sp.rewrite(ctx, worth, nil, &pace, out)
}

// SetUsualSegment changes the usual size of a segment until reset is called.
func SetUsualSegment(n int64) (reset func()) {
	was := usualSegment
	usualSegment = n
	return func() { usualSegment = was }
}
