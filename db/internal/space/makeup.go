package space

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/budget"
)

// MakeUp is makeUp for who does not have the lock of the checkpoints.
func (sp *Space) MakeUp(ctx context.Context) {
	sp.Checkpoints.Lock()
	defer sp.Checkpoints.Unlock()
	sp.makeUp(ctx)
}

// Crowded is how many files of the log there were when the store was opened, until room was made for them.
func (sp *Space) Crowded() int { return int(sp.crowded.Load()) }

// makeUp gives back what segments have reserved ahead, destroys what is dead, and evicts, for the log's files that they left, if the
// budget has not the room for as many again: so it holds however many are killed before a checkpoint of theirs has removed a file. The caller holds the lock of the checkpoints.
func (sp *Space) makeUp(ctx context.Context) {
	if sp.crowded.Swap(0) <= 1 {
		return
	}
	over := func() int64 { return sp.Budget.Used() + sp.Budget.MoveReserve() - sp.Budget.Bytes() }
	if sp.Budget.Measure(); over() <= 0 {
		return
	}
	sp.giveBackAhead(ctx)
	_, err := sp.Checkpoints.ReclaimLocked(ctx, nil) // what is dead, and waits since the kill, may be enough
	evicted := 0
	for n := 1; err == nil && n > 0 && over() > sp.Budget.Coming(); evicted += n {
		n, err = sp.Evictor.Some(budget.Lack{Bytes: over() - sp.Budget.Coming()})
	}
	if err == nil {
		_, err = sp.Checkpoints.ReclaimLocked(ctx, nil)
	}
	sp.Ledger.Logger.Info("room was made for the log's files of processes that were killed", "dir", sp.Ledger.Dir, "evicted", evicted, "error", err)
	sp.Ledger.Damaged(err) // nobody else hears of it
}

// giveBackAhead gives back the disk blocks that segments have reserved ahead of their records: those of killed processes, where nobody writes
// any more, and those of models that nobody puts to just now. It returns how many bytes the latter were. What cannot be given back, on a full
// disk perhaps, keeps nobody from evicting: a checkpoint tries again with the former. The caller holds the lock of the checkpoints.
func (sp *Space) giveBackAhead(ctx context.Context) (bytes int64) {
	left := sp.Checkpoints.Unsealed()
	lerr := sp.Checkpoints.SealLeftovers(ctx)
	bytes, err := sp.Ledger.Segments.GiveBackAhead()
	if err = errors.Join(lerr, err); err != nil {
		sp.Ledger.Logger.Warn("the room that segments had reserved ahead is not given back yet", "dir", sp.Ledger.Dir, "error", err)
	}
	if left || bytes > 0 {
		sp.Budget.Measure()
	}
	return bytes
}
