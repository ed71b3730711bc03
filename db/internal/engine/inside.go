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

func (i Inside) Wal() *wal.Log                        { return i.e.wal }
func (i Inside) Bloom() *atomic.Pointer[index.Bloom]  { return &i.e.bloom }
func (i Inside) CkptMu() *lock.Mutex[lock.Checkpoint] { return &i.e.ckptMu.Mutex }
func (i Inside) CommitMu() *lock.Mutex[lock.Commit]   { return &i.e.commitMu }
func (i Inside) Workers() *read.Workers               { return i.e.workers }
func (i Inside) OnDamage(err error)                   { i.e.onDamage(err) }
func (i Inside) Unsealed() any                        { return i.e.unsealed }
func (i Inside) Unsynced() bool                       { return i.e.unsynced() }
func (i Inside) OpenEnds() map[uint64]int64           { return i.e.openEnds() }

// EvictBlocks evicts n blocks, or what there is, whoever is destroying something meanwhile.
func (i Inside) EvictBlocks(n int) (evicted int, err error) {
	for evicted < n {
		some, err := i.e.evictSome(evictGoal{blocks: int64(n - evicted)})
		if err != nil || some == 0 {
			return evicted, err
		}
		evicted += some
	}
	return evicted, nil
}

func (i Inside) Reclaim(ctx context.Context) error                     { return i.e.reclaim(ctx) }
func (i Inside) Move(ctx context.Context, x index.Entry) (bool, error) { return i.e.move(ctx, x) }

// Rewrite moves the live records out of the segments that are worth it.
func (i Inside) Rewrite(ctx context.Context, worth func(s segments.Info, live int64) bool, progress func(Progress), out *Compacted) error {
	pace := i.e.workers.HousePace()
	return i.e.rewrite(ctx, worth, progress, &pace, out)
}

// NewPut is a put that the caller runs step by step.
func (i Inside) NewPut(m *catalog.Model, rows kv.Rows, extends *lease.Held, o write.Options) *write.Put {
	return i.e.writes.New(i.e.written(m), rows, extends, o)
}

// SetMaxHead and SetRemoveBatch change limits until the returned function is called.
func SetMaxHead(n int) (reset func())     { return set(&maxHead, n) }
func SetRemoveBatch(n int) (reset func()) { return set(&removeBatch, n) }

func set[T any](v *T, to T) (reset func()) {
	was := *v
	*v = to
	return func() { *v = was }
}
