// Package space makes room in a store and gives room back: it evicts, destroys what is dead, moves what lives out of half-dead segments, and shrinks
// the index. Checkpoints are made through it, since they may have to make room for themselves.
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

// ReserveState takes room for a model or note: one is in the log, one in the head of the next log file and one in the index. Others make way. The
// caller gives it up when the log has it.
func (sp *Space) ReserveState(ctx context.Context, bytes int64) error {
	if sp.Budget.ReserveState(bytes) {
		return nil
	}
	return sp.MakeRoom(ctx, bytes, 0)
}

// finished returns nil for an error that only says that something could not be destroyed yet.
func finished(err error) error {
	if errors.Is(err, checkpoint.ErrNotDestroyed) {
		return nil
	}
	return err
}
