package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Commit publishes what build changes in the index, and appends the frame that says so, or does neither. build returns
// the operation, nil for nothing to log. visible, if there is one, is called afterwards, before anybody else can commit. The caller holds no lock.
func (e *Engine) Commit(build func(t *index.Txn) (oplog.Op, error), visible func()) (lsn uint64, err error) {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	if lsn, err = e.commitLocked(build); err == nil && visible != nil {
		visible()
	}
	return lsn, err
}

func (e *Engine) commitLocked(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	if err := e.Poisoned(); err != nil {
		return 0, err
	}
	err = e.updateIndex(func(t *index.Txn) error {
		op, err := build(t)
		if err != nil || op == nil {
			return err
		}
		frame := oplog.Encode(op)
		e.growth.Add(int64(len(frame)))
		lsn, err = e.appendFrame(op, frame)
		return err
	})
	e.dirty.Store(true)
	if err != nil && lsn != 0 {
		err = fmt.Errorf("%w: frame %d is logged and was not applied: %w", index.ErrDamaged, lsn, err)
	}
	if IsIndexDamage(err) && e.onDamage != nil {
		e.onDamage(err)
	}
	return lsn, err
}

// commitBoth is commitLocked of an operation that changes the catalog, too: nobody sees the index after it beside the catalog
// before it. visible, if there is one, is called in between, when all new matches see the index after it.
func (e *Engine) commitBoth(build func(t *index.Txn) (oplog.Op, error), visible func()) (lsn uint64, err error) {
	var release func(oplog.Op, catalog.Place)
	var built oplog.Op
	lsn, err = e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		op, err := build(t)
		if err == nil && op != nil {
			built, release = op, e.Catalog.Hold()
		}
		return op, err
	})
	if release == nil {
		return lsn, err
	}
	if err != nil {
		built = nil
	} else if visible != nil {
		visible()
	}
	release(built, catalog.Place{LSN: lsn})
	return lsn, err
}

// appendFrame appends the operation's frame. A frame that frees space may use what the log keeps in reserve, and as a last resort the blocks
// of the Bloom filter's file, which is derived: otherwise a full disk would stay full.
func (e *Engine) appendFrame(op oplog.Op, frame []byte) (uint64, error) {
	kind, room := op.Kind(), op.Room()
	if room == oplog.Ordinary {
		return e.wal.Append(kind, frame)
	}
	reserved := func() (uint64, error) {
		if room == oplog.Last {
			return e.wal.AppendReserved(kind, frame)
		}
		return e.wal.AppendBefore(kind, frame, oplog.BarrierBytes)
	}
	lsn, err := reserved()
	if !errors.Is(err, vfs.ErrNoSpace) || e.wal.Err() != nil {
		return lsn, err
	}
	if derr := e.wal.Donate(e.Path(folder.BloomName)); derr != nil {
		return 0, err
	}
	e.log.Warn("the Bloom filter's file made room for the log on a full disk", "dir", e.Dir)
	return reserved()
}

// LogState appends a frame that changes only the catalog.
func (e *Engine) LogState(op oplog.Op) (lsn uint64, err error) {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	return e.logStateLocked(op)
}

func (e *Engine) logStateLocked(op oplog.Op) (lsn uint64, err error) {
	if err := e.Poisoned(); err != nil {
		return 0, err
	}
	frame := oplog.Encode(op)
	if lsn, err = e.appendFrame(op, frame); err != nil {
		return 0, err
	}
	e.growth.Add(int64(len(frame)))
	e.stateGrowth.Add(int64(len(frame)))
	e.dirty.Store(true)
	e.Catalog.Apply(op, catalog.Place{LSN: lsn})
	return lsn, nil
}

// BoundState makes a checkpoint where the log has grown by much that changes only the catalog: nobody else sees that, in a
// store to which nothing is put. The caller holds no lock.
func (e *Engine) BoundState(ctx context.Context) error {
	if e.wal == nil || e.stateGrowth.Load() <= e.logReserve()/2 {
		return nil
	}
	return e.Checkpoint(ctx)
}
