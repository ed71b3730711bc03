package space

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// roomSearch is a search for room for a record, and how far it has come.
type roomSearch struct {
	bytes, blocks int64
	evicted       bool // since space that came back was last looked for
	quarter       bool // more had to go than may go at once: see evictFor
	shrunk        bool // index.db, of its free pages
	lacked        bool // more than what is on its way out already, when evictFor looked last
}

// roomPatience is how often MakeRoom waits for what no match keeps. It comes back soon: the store itself looks at it, or somebody else
// destroys it. The waits grow by a millisecond each, and are 5 s in all.
const roomPatience = 100

// MakeRoom evicts until it could reserve room for a record, or returns vfs.ErrNoSpace. The caller holds no lock and not the
// gate.
func (sp *Space) MakeRoom(ctx context.Context, bytes, blocks int64) error {
	return sp.makeRoom(ctx, bytes, blocks, roomPatience)
}

// ReserveState takes room for a model or note: one is in the log, one in the head of the next log file and one in the index. Others make way. The
// caller gives it up when the log has it.
func (sp *Space) ReserveState(ctx context.Context, bytes int64) error {
	if sp.Budget.ReserveState(bytes) {
		return nil
	}
	return sp.MakeRoom(ctx, bytes, 0)
}

// TryRoom is MakeRoom for several records: it does not wait for what open matches keep. Where holes cannot be punched it finds nothing. What is
// evicted there comes back with whole segments, and who asks for much evicts what is warm.
func (sp *Space) TryRoom(ctx context.Context, bytes, blocks int64) error {
	if sp.Ledger.Segments.Solid() {
		return vfs.ErrNoSpace
	}
	return sp.makeRoom(ctx, bytes, blocks, 0)
}

func (sp *Space) makeRoom(ctx context.Context, bytes, blocks int64, patience int) error {
	if err := sp.Ledger.Poisoned(); err != nil { // a reader's, too
		return err
	}
	sp.Budget.Measure()
	if sp.Budget.CannotHold(bytes) {
		return sp.Budget.Full(bytes, blocks)
	}
	search := &roomSearch{bytes: bytes, blocks: blocks}
	for waited := 0; !sp.Budget.Reserve(bytes, blocks); {
		if err := ctx.Err(); err != nil {
			return err
		}
		sp.Checkpoints.Lock()
		if sp.Budget.Over(bytes) > 0 { // else it would be reserved again at once
			sp.giveBackAhead(ctx)
		}
		sp.Checkpoints.Unlock()
		more, undone := sp.Checkpoints.ReclaimFor(ctx, bytes)
		if undone != nil && !errors.Is(undone, checkpoint.ErrNotDestroyed) {
			return undone
		}
		if sp.Budget.Reserve(bytes, blocks) {
			return nil
		}
		if more {
			continue
		}
		if found, err := sp.moreRoom(ctx, search); err != nil {
			return err
		} else if found {
			continue
		}
		// Nothing more may go, or enough has gone and waits: puts that fail under a long match must not empty the store.
		unseen, seen := sp.Ledger.Segments.Kept()
		returning := sp.Ledger.Segments.Held() - seen
		if waited >= patience || (search.lacked || returning > 0) && returning <= unseen {
			return errors.Join(sp.Budget.Full(bytes, blocks), undone)
		}
		waited++
		time.Sleep(time.Duration(waited) * time.Millisecond)
	}
	return nil
}

// moreRoom takes the first of these steps that finds something: after an eviction, whole segments that are dead; what is dead in others;
// the coldest blocks; free pages of index.db; pins that ran out. What is found may come back with the next reclaim only.
func (sp *Space) moreRoom(ctx context.Context, search *roomSearch) (found bool, err error) {
	if search.evicted {
		search.evicted = false
		return true, sp.lookAfterEviction(ctx, search.quarter)
	}
	if freed, err := sp.rewriteFor(ctx, search.bytes); err != nil || freed > 0 {
		return true, err
	}
	if gone, err := sp.evictFor(ctx, search); err != nil || gone > 0 {
		return true, err
	}
	if !search.shrunk && sp.indexWorth() {
		search.shrunk = true
		return true, sp.tryCompactIndex(ctx)
	}
	n, err := sp.Ledger.ExpireRefs() // the worker comes by every few seconds
	if n > 0 || errors.Is(err, vfs.ErrNoSpace) {
		err = nil
	}
	return n > 0, err
}

// rewriteFor gives back the room of what is dead in half-dead segments, if so many bytes do not fit and there is some.
func (sp *Space) rewriteFor(ctx context.Context, bytes int64) (freed int64, err error) {
	sp.Checkpoints.Lock()
	lack := sp.Budget.Lacking(bytes, 0).Bytes
	sp.Checkpoints.Unlock()
	if lack <= 0 {
		return 0, nil
	}
	if _, dead := sp.deadSegments(); dead == 0 {
		return 0, nil
	}
	return sp.rewriteDead(ctx, lack)
}

// evictFor evicts what is lacking, and at most a quarter of what is stored: where the budget was lowered, an index of many blocks may be what
// fills it, and that shrinks with them.
func (sp *Space) evictFor(ctx context.Context, search *roomSearch) (gone int, err error) {
	search.quarter, search.lacked = false, false
	live := sp.Ledger.Counts().Bytes
	gone, err = sp.Evictor.Until(ctx, func() budget.Lack {
		lack := sp.Budget.Lacking(search.bytes, search.blocks)
		search.lacked = lack.Bytes > 0 || lack.Blocks > 0
		if most := sp.Ledger.Counts().Bytes - live*3/4; lack.Bytes > most {
			lack.Bytes, search.quarter = most, true
		}
		return lack
	})
	search.evicted = gone > 0
	return gone, err
}

// lookAfterEviction finds space that did not come back by itself. Where pages cannot be punched, a checkpoint finds the segments that are
// wholly dead.
func (sp *Space) lookAfterEviction(ctx context.Context, much bool) error {
	if err := sp.Checkpoint(ctx); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) {
		return err
	}
	if much && sp.indexWorth() {
		return sp.tryCompactIndex(ctx)
	}
	return nil
}

// tryCompactIndex is compactIndex where the disk may be full: then more has to go first.
func (sp *Space) tryCompactIndex(ctx context.Context) error {
	if err := sp.compactIndex(ctx); !errors.Is(err, vfs.ErrNoSpace) {
		return err
	}
	return nil
}

// Retries say how often what the disk refused is tried again.
type Retries struct {
	sp      *Space
	nothing bool // nothing was evicted the last time: what was only dead was destroyed then
}

// Retries returns those of one call.
func (sp *Space) Retries() *Retries { return &Retries{sp: sp} }

// After reports whether what ended with err is to be tried again: the disk refused it, though there had seemed to be room, or others took that since,
// and some room was made. Else it returns the error to give. The caller holds no lock and not the publish gate.
func (r *Retries) After(ctx context.Context, err error) (again bool, _ error) {
	if !errors.Is(err, vfs.ErrNoSpace) || budget.IsFull(err) || r.sp.Ledger.Poisoned() != nil {
		return false, err
	}
	evicted, eerr := r.sp.makeSomeRoom(ctx)
	if eerr != nil {
		return false, errors.Join(err, eerr)
	}
	if evicted == 0 && r.nothing {
		return false, err
	}
	r.nothing = evicted == 0
	return true, nil
}

// makeSomeRoom makes some room on the disk, whatever is free there: what was reserved ahead goes back, what is dead is destroyed, and if that is
// little, something is evicted.
func (sp *Space) makeSomeRoom(ctx context.Context) (evicted int, err error) {
	before, _ := sp.Budget.DiskFree()
	sp.Checkpoints.Lock()
	given := sp.giveBackAhead(ctx)
	sp.Checkpoints.Unlock()
	if _, err := sp.Checkpoints.ReclaimFor(ctx, sp.Budget.Step()); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) {
		return 0, err
	}
	if evicted, err = sp.Evictor.Once(func() budget.Lack { return budget.Lack{Bytes: sp.Budget.Step() - given - sp.Budget.Coming()} }); err != nil {
		return 0, err
	}
	if _, err := sp.Checkpoints.ReclaimFor(ctx, sp.Budget.Step()); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) {
		return evicted, err
	}
	if free, ok := sp.Budget.DiskFree(); ok && free > before {
		return evicted, nil
	}
	// Where pages cannot be punched, a checkpoint finds the segments that are wholly dead.
	if err := sp.Checkpoint(ctx); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) && !errors.Is(err, vfs.ErrNoSpace) {
		return evicted, err
	}
	return evicted, nil
}
