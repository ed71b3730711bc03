package checkpoint

import (
	"context"
	"sync"
)

// Inside are checkpoints as the store's tests see them, step by step.
type Inside struct{ k *Checkpoints }

// Inside is for tests.
func (k *Checkpoints) Inside() Inside { return Inside{k} }

// Mu is the lock, taken without a notice to who has it that somebody waits.
func (i Inside) Mu() sync.Locker { return &i.k.mu }

// Unsealed is how many segments an earlier process left unsealed, for whoever holds the lock or uses the store alone.
func (i Inside) Unsealed() int { return len(i.k.unsealed) }

// Head is what the log's next file would begin with, if the open segments ended there.
func (i Inside) Head(ends map[uint64]int64) []byte {
	return i.k.Ledger.Catalog.Head(ends, i.k.Ledger.NextCounters())()
}

// Freeze begins a checkpoint, for whoever holds the lock. finish writes it.
func (i Inside) Freeze() (finish func(context.Context) error, err error) {
	b, err := i.k.freeze()
	if err != nil {
		return nil, err
	}
	i.k.begun = b
	return func(ctx context.Context) error { return i.k.write(ctx, b, func() {}) }, nil
}

// HalfCheckpoint makes a checkpoint up to where index.db has it.
func (i Inside) HalfCheckpoint(ctx context.Context) error {
	b, err := i.k.freeze()
	if err != nil {
		return err
	}
	if err := i.k.Ledger.Segments.Sync(); err != nil {
		return err
	}
	return i.k.Ledger.Index.Checkpoint(ctx, b.applied)
}
