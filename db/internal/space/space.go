package space

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/evict"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/tally"
)

// Parts are what room is made with.
type Parts struct {
	Ledger      *commit.Ledger
	Budget      *budget.Budget
	Checkpoints *checkpoint.Checkpoints
	Journals    *journals.Set
	Evictor     *evict.Evictor
	Workers     *read.Workers
	Count       *tally.Counters

	HighWater, LowWater float64 // shares of what pins leave of the budget
	SegmentBytes        int64   // of a segment file
}

// Space makes room. It is safe for concurrent use.
type Space struct {
	Parts
	pinned  pinned
	crowded atomic.Int32 // files of the log that were there when the store was opened
}

// New returns the space of a store.
func New(p Parts) *Space { return &Space{Parts: p} }

// Crowd notes how many files the log had when the store was opened.
func (sp *Space) Crowd(logFiles int) { sp.crowded.Store(int32(logFiles)) }

// Checkpoint makes everything durable that was acknowledged so far, moves it from the log to the index, and removes the log files that are no longer
// needed.
func (sp *Space) Checkpoint(ctx context.Context) error {
	sp.Checkpoints.Lock()
	defer sp.Checkpoints.Unlock()
	return sp.checkpoint(ctx)
}

// checkpoint is Checkpoint for who has the lock of the checkpoints.
func (sp *Space) checkpoint(ctx context.Context) error {
	if err := sp.Ledger.Poisoned(); err != nil {
		return err
	}
	sp.makeUp(ctx)
	return sp.Checkpoints.Run(ctx)
}

// BoundState makes a checkpoint where the log has grown by much that changes only the catalog: nobody else sees that, in a store to which nothing is
// put. The caller holds no lock.
func (sp *Space) BoundState(ctx context.Context) error {
	if sp.Ledger.ReadOnly() || !sp.Budget.StateOutgrown() {
		return nil
	}
	return sp.Checkpoint(ctx)
}

// finished returns nil for an error that only says that something could not be destroyed yet.
func finished(err error) error {
	if errors.Is(err, checkpoint.ErrNotDestroyed) {
		return nil
	}
	return err
}

// pinned is what pinned refs keep: all else shares what that leaves of the budget, and the water marks are shares of the rest. Measured over all
// of the budget, pins above the low one would have everything else go whenever the high one is crossed.
type pinned struct {
	asOf          atomic.Uint64 // the catalog's PinChanges when it was counted
	again         atomic.Int64  // when it may be counted again, in nanoseconds
	bytes, blocks atomic.Int64
}

// CompactOptions are db.CompactOptions.
type CompactOptions struct {
	LiveShare float64 // 0: one half
	All       bool
	Progress  func(tally.Progress)
	Least     int64 // bytes that rewriting segments must give back in all
}

// Compacted says what a compaction did: db.Compacted.
type Compacted struct {
	Segments      int
	Records       int
	Bytes         int64
	Before, After int64
}

// usualSegment is the size of segments in a store of usual size: whoever raises the budget has not a store of small segments thereby. A variable for
// tests.
var usualSegment int64 = 64 << 20
