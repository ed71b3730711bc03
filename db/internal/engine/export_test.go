package engine

import (
	"context"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// What follows is what only this package's own tests see of an engine.

func (i Inside) PublishGate() *lock.RWMutex[lock.PublishGate] { return &i.e.publishGate }
func (i Inside) Seq() *atomic.Uint64                          { return &i.e.seq }
func (i Inside) Growth() *atomic.Int64                        { return &i.e.growth }
func (i Inside) StateGrowth() *atomic.Int64                   { return &i.e.stateGrowth }
func (i Inside) Measured() *atomic.Bool                       { return &i.e.measured }
func (i Inside) Held() int64                                  { return i.e.held() }
func (i Inside) ReserveBytes() int64                          { return i.e.reserveBytes() }
func (i Inside) AboveHighWater() bool                         { return i.e.aboveHighWater() }
func (i Inside) Turn(ctx context.Context, tick bool) error    { return i.e.turn(ctx, tick) }
func (i Inside) EvictToLowWater(ctx context.Context) error    { return i.e.evictToLowWater(ctx) }
func (i Inside) LogBarrier(lsn uint64) (uint64, error)        { return i.e.logBarrier(lsn) }

// LeafWalks is how often evictions have gone through the leaves of a model.
func (i Inside) LeafWalks() int64 { return i.e.walked.Load() }

// Space is what the files are counted to occupy, what puts under way have reserved of it, and the blocks that they are about to add.
func (i Inside) Space() (used, reserved, blocks int64) {
	u := &i.e.space
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.usedLocked(), u.reserved, u.blocks
}

// TakeSpace is a reservation up to a limit.
func (i Inside) TakeSpace(bytes, limit int64) bool { return i.e.space.reserve(bytes, limit) }

// Head is what the log's next file would begin with.
func (i Inside) Head(ends map[uint64]int64) []byte {
	encode, _ := i.e.laterHead(ends)
	return encode()
}

// Freeze begins a checkpoint, for whoever holds CkptMu. finish writes it.
func (i Inside) Freeze() (finish func(context.Context) error, err error) {
	c, err := i.e.freeze()
	if err != nil {
		return nil, err
	}
	i.e.begun = c
	return func(ctx context.Context) error { return i.e.writeCheckpoint(ctx, c, func() {}) }, nil
}

// HalfCheckpoint makes a checkpoint up to where index.db has it.
func (i Inside) HalfCheckpoint(ctx context.Context) error {
	c, err := i.e.freeze()
	if err != nil {
		return err
	}
	if err := i.e.Segments.Sync(); err != nil {
		return err
	}
	return i.e.Index.Checkpoint(ctx, c.applied)
}

// Deletion is the deletion of a prefix, a frame with each call.
func (i Inside) Deletion(m *catalog.Model, prefix *kv.Prompt) func(out *Deleted) (more bool, err error) {
	what := i.e.removalOf(m, prefix)
	return func(out *Deleted) (bool, error) {
		_, more, err := i.e.deleteSome(what, out)
		return more, err
	}
}

// ThinStates is what a put does with Options.KeepStates.
func (i Inside) ThinStates(m *catalog.Model, p *kv.Prompt, keep int) error {
	return i.e.writes.ThinStates(Searched(m), p, keep)
}

// RemoveBatch bounds the records that one log frame removes.
func RemoveBatch() int { return removeBatch }

// ReclaimBatch is about how many removed records wait to be destroyed, at most, while a deletion goes on.
func ReclaimBatch() int { return reclaimBatch }

// SetReclaimBatch and SetUsualSegment change limits until the returned function is called.
func SetReclaimBatch(n int) (reset func())   { return set(&reclaimBatch, n) }
func SetUsualSegment(n int64) (reset func()) { return set(&usualSegment, n) }
