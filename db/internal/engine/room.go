package engine

import (
	"context"
	"errors"
	"time"

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
func (e *Engine) MakeRoom(ctx context.Context, bytes, blocks int64) error {
	return e.makeRoom(ctx, bytes, blocks, roomPatience)
}

// RoomShare is how many bytes of records room is made for at a time.
func (e *Engine) RoomShare() int64 { return e.allocateStep() }

// TryRoom is MakeRoom for several records: it does not wait for what open matches keep. Where holes cannot be punched it finds nothing. What is
// evicted there comes back with whole segments, and who asks for much evicts what is warm.
func (e *Engine) TryRoom(ctx context.Context, bytes, blocks int64) error {
	if e.Segments.Solid() {
		return vfs.ErrNoSpace
	}
	return e.makeRoom(ctx, bytes, blocks, 0)
}

func (e *Engine) makeRoom(ctx context.Context, bytes, blocks int64, patience int) error {
	if err := e.Poisoned(); err != nil { // a reader's, too
		return err
	}
	e.Measure()
	if e.hopeless(bytes) {
		return e.full(bytes, blocks)
	}
	search := &roomSearch{bytes: bytes, blocks: blocks}
	for waited := 0; !e.Reserve(bytes, blocks); {
		if err := ctx.Err(); err != nil {
			return err
		}
		e.ckptMu.Lock()
		if e.over(bytes) > 0 { // else it would be reserved again at once
			e.giveBackAhead(ctx)
		}
		e.ckptMu.Unlock()
		more, undone := e.reclaimFor(ctx, bytes)
		if undone != nil && !errors.Is(undone, ErrNotDestroyed) {
			return undone
		}
		if e.Reserve(bytes, blocks) {
			return nil
		}
		if more {
			continue
		}
		if found, err := e.moreRoom(ctx, search); err != nil {
			return err
		} else if found {
			continue
		}
		// Nothing more may go, or enough has gone and waits: puts that fail under a long match must not empty the store.
		unseen, seen := e.Segments.Kept()
		returning := e.held() - seen
		if waited >= patience || (search.lacked || returning > 0) && returning <= unseen {
			return errors.Join(e.full(bytes, blocks), undone)
		}
		waited++
		time.Sleep(time.Duration(waited) * time.Millisecond)
	}
	return nil
}

// moreRoom takes the first of these steps that finds something: after an eviction, whole segments that are dead; what is dead in others;
// the coldest blocks; free pages of index.db; pins that ran out. What is found may come back with the next reclaim only.
func (e *Engine) moreRoom(ctx context.Context, search *roomSearch) (found bool, err error) {
	if search.evicted {
		search.evicted = false
		return true, e.lookAfterEviction(ctx, search.quarter)
	}
	if freed, err := e.rewriteFor(ctx, search.bytes); err != nil || freed > 0 {
		return true, err
	}
	if gone, err := e.evictFor(ctx, search); err != nil || gone > 0 {
		return true, err
	}
	if !search.shrunk && e.indexWorth() {
		search.shrunk = true
		return true, e.tryCompactIndex(ctx)
	}
	n, err := e.expireRefs() // the worker comes by every few seconds
	if n > 0 || errors.Is(err, vfs.ErrNoSpace) {
		err = nil
	}
	return n > 0, err
}

// rewriteFor gives back the room of what is dead in half-dead segments, if so many bytes do not fit and there is some.
func (e *Engine) rewriteFor(ctx context.Context, bytes int64) (freed int64, err error) {
	e.ckptMu.Lock()
	lack := e.lacking(bytes, 0).bytes
	e.ckptMu.Unlock()
	if lack <= 0 {
		return 0, nil
	}
	if _, dead := e.deadSegments(); dead == 0 {
		return 0, nil
	}
	return e.rewriteDead(ctx, lack)
}

// evictFor evicts what is lacking, and at most a quarter of what is stored: where the budget was lowered, an index of many blocks may be what
// fills it, and that shrinks with them.
func (e *Engine) evictFor(ctx context.Context, search *roomSearch) (gone int, err error) {
	search.quarter, search.lacked = false, false
	live := e.Counts().Bytes
	gone, err = e.evict(ctx, func() evictGoal {
		lack := e.lacking(search.bytes, search.blocks)
		search.lacked = lack.bytes > 0 || lack.blocks > 0
		if most := e.Counts().Bytes - live*3/4; lack.bytes > most {
			lack.bytes, search.quarter = most, true
		}
		return lack
	})
	search.evicted = gone > 0
	return gone, err
}

// lookAfterEviction finds space that did not come back by itself. Where pages cannot be punched, a checkpoint finds the segments that are
// wholly dead.
func (e *Engine) lookAfterEviction(ctx context.Context, much bool) error {
	if err := e.Checkpoint(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
		return err
	}
	if much && e.indexWorth() {
		return e.tryCompactIndex(ctx)
	}
	return nil
}

// tryCompactIndex is compactIndex where the disk may be full: then more has to go first.
func (e *Engine) tryCompactIndex(ctx context.Context) error {
	if err := e.compactIndex(ctx); !errors.Is(err, vfs.ErrNoSpace) {
		return err
	}
	return nil
}

// Insist does what needs room on the disk. If the disk refuses it, though there had seemed to be room, or others took it since, something
// is evicted, and it is tried again, as long as anything can go. The caller holds no lock and not the publish gate.
func (e *Engine) Insist(ctx context.Context, do func() error) error {
	for again := true; ; {
		err := do()
		if why := new(errFull); !errors.Is(err, vfs.ErrNoSpace) || errors.As(err, &why) || e.Poisoned() != nil {
			return err
		}
		evicted, eerr := e.giveWay(ctx)
		if eerr != nil {
			return errors.Join(err, eerr)
		}
		if evicted == 0 && !again { // what was only dead was destroyed the last time
			return err
		}
		again = evicted > 0
	}
}

// giveWay makes some room on the disk, whatever is free there: what was reserved ahead goes back, what is dead is destroyed, and if that is
// little, something is evicted.
func (e *Engine) giveWay(ctx context.Context) (evicted int, err error) {
	before, _ := e.diskFree()
	e.ckptMu.Lock()
	given := e.giveBackAhead(ctx)
	e.ckptMu.Unlock()
	if _, err := e.reclaimFor(ctx, e.allocateStep()); err != nil && !errors.Is(err, ErrNotDestroyed) {
		return 0, err
	}
	if evicted, err = e.evictOnce(func() evictGoal { return evictGoal{bytes: e.allocateStep() - given - e.coming()} }); err != nil {
		return 0, err
	}
	if _, err := e.reclaimFor(ctx, e.allocateStep()); err != nil && !errors.Is(err, ErrNotDestroyed) {
		return evicted, err
	}
	if free, ok := e.diskFree(); ok && free > before {
		return evicted, nil
	}
	// Where pages cannot be punched, a checkpoint finds the segments that are wholly dead.
	if err := e.Checkpoint(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) && !errors.Is(err, vfs.ErrNoSpace) {
		return evicted, err
	}
	return evicted, nil
}
