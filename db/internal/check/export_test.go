package check

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/tally"
)

// Segments is the part of Run that compares the index with the segments, and every record with its checksums.
func Segments(ctx context.Context, e *engine.Engine, progress func(tally.Progress)) (Report, error) {
	v := newVerifier(e, progress)
	live, err := v.entries(ctx)
	if err == nil {
		err = v.segments(ctx, live)
	}
	return v.out, err
}

// Bloom is the part of Run that compares the Bloom filter with the index.
func Bloom(ctx context.Context, e *engine.Engine) (Report, error) {
	v := newVerifier(e, nil)
	err := v.bloom(ctx)
	return v.out, err
}
