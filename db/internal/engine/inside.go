package engine

import (
	"context"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Inside is an engine as the store's tests see it: steps of what it does, and its state.
type Inside struct{ e *Engine }

// Inside is for tests.
func (e *Engine) Inside() Inside { return Inside{e} }

// Watcher is a file system that is told of each engine that is started on it: so a test gets that of its store.
type Watcher interface{ Started(e *Engine) }

func (i Inside) Wal() *wal.Log                                { return i.e.wal }
func (i Inside) Bloom() *atomic.Pointer[index.Bloom]          { return &i.e.bloom }
func (i Inside) CkptMu() *lock.Mutex[lock.Checkpoint]         { return &i.e.ckptMu.Mutex }
func (i Inside) PublishGate() *lock.RWMutex[lock.PublishGate] { return &i.e.publishGate }
func (i Inside) CommitMu() *lock.Mutex[lock.Commit]           { return &i.e.commitMu }
func (i Inside) Workers() *read.Workers                       { return i.e.workers }
func (i Inside) Seq() *atomic.Uint64                          { return &i.e.seq }
func (i Inside) OnDamage(err error)                           { i.e.onDamage(err) }
func (i Inside) Growth() *atomic.Int64                        { return &i.e.growth }
func (i Inside) StateGrowth() *atomic.Int64                   { return &i.e.stateGrowth }
func (i Inside) Measured() *atomic.Bool                       { return &i.e.measured }
func (i Inside) Unsealed() any                                { return i.e.unsealed }
func (i Inside) Unsynced() bool                               { return i.e.unsynced() }
func (i Inside) Held() int64                                  { return i.e.held() }
func (i Inside) ReserveBytes() int64                          { return i.e.reserveBytes() }
func (i Inside) AboveHighWater() bool                         { return i.e.aboveHighWater() }
func (i Inside) OpenEnds() map[uint64]int64                   { return i.e.openEnds() }

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

// EvictBlocks evicts n blocks, or what there is, whoever is destroying something meanwhile.
func (i Inside) EvictBlocks(n int) (evicted int, err error) {
	for evicted < n {
		some, _, err := i.e.evictSome(evictGoal{blocks: int64(n - evicted)})
		if err != nil || some == 0 {
			return evicted, err
		}
		evicted += some
	}
	return evicted, nil
}

func (i Inside) Turn(ctx context.Context, tick bool) error             { return i.e.turn(ctx, tick) }
func (i Inside) Reclaim(ctx context.Context) error                     { return i.e.reclaim(ctx) }
func (i Inside) EvictToLowWater(ctx context.Context) error             { return i.e.evictToLowWater(ctx) }
func (i Inside) Move(ctx context.Context, x index.Entry) (bool, error) { return i.e.move(ctx, x) }
func (i Inside) LogBarrier(lsn uint64) (uint64, error)                 { return i.e.logBarrier(lsn) }

// Rewrite moves the live records out of the segments that are worth it.
func (i Inside) Rewrite(ctx context.Context, worth func(s segments.Info, live int64) bool, progress func(Progress), out *Compacted) error {
	pace := i.e.workers.HousePace()
	return i.e.rewrite(ctx, worth, progress, &pace, out)
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

// NewPut is a put that the caller runs step by step.
func (i Inside) NewPut(m *catalog.Model, rows kv.Rows, extends *lease.Held, o write.Options) *write.Put {
	return i.e.writes.New(i.e.written(m), rows, extends, o)
}

// ThinStates is what a put does with Options.KeepStates.
func (i Inside) ThinStates(m *catalog.Model, p *kv.Prompt, keep int) error {
	return i.e.writes.ThinStates(Searched(m), p, keep)
}

// RemoveBatch bounds the records that one log frame removes.
func RemoveBatch() int { return removeBatch }

// ReclaimBatch is about how many removed records wait to be destroyed, at most, while a deletion goes on.
func ReclaimBatch() int { return reclaimBatch }

// SetMaxHead and the others change limits until the returned function is called.
func SetMaxHead(n int) (reset func())        { return set(&maxHead, n) }
func SetRemoveBatch(n int) (reset func())    { return set(&removeBatch, n) }
func SetReclaimBatch(n int) (reset func())   { return set(&reclaimBatch, n) }
func SetUsualSegment(n int64) (reset func()) { return set(&usualSegment, n) }

func set[T any](v *T, to T) (reset func()) {
	was := *v
	*v = to
	return func() { *v = was }
}
