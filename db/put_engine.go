package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// putEngine is what puts need of the engine.
type putEngine struct{ *engine }

func (e putEngine) Reserve(bytes, blocks int64) bool { return e.reserve(bytes, blocks) }
func (e putEngine) GiveUp(bytes, blocks int64)       { e.space.giveUp(bytes, blocks) }
func (e putEngine) MakeRoom(ctx context.Context, bytes, blocks int64) error {
	return e.makeRoom(ctx, bytes, blocks)
}

func (e putEngine) WasDamaged(k kv.Key) bool { return e.catalog.IsFlagged(k) }

func (e putEngine) Named(k kv.Key) bool {
	return e.catalog.IsNamed(k)
}

func (e putEngine) Commit(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	return e.commit(build)
}

func (e putEngine) CommitEviction(build func(t *index.Txn) (op oplog.Remove, blocks int, err error)) error {
	var op oplog.Remove
	var blocks int
	e.logMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	defer e.logMu.Unlock()
	if _, err := e.commitLocked(func(t *index.Txn) (_ oplog.Op, err error) {
		if op, blocks, err = build(t); err != nil || len(op.Dead) == 0 {
			return nil, err
		}
		op.Seq = e.birth.Load()
		return op, nil
	}); err != nil {
		return err
	}
	e.catalog.Bury(op.Dead, true) // what was put since must be durable first
	e.bloomRemoved(int64(blocks))
	return nil
}

func (e putEngine) RemoveBlock(t *index.Txn, block index.Entry) ([]oplog.Dead, error) {
	dead, _, err := e.removeBlock(t, block)
	return dead, err
}

func (e putEngine) Doom(dead []oplog.Dead, behind bool) { e.catalog.Bury(dead, behind) }
func (e putEngine) AddToBloom(k kv.Key)                 { e.addToBloom(k) }
func (e putEngine) Ranked(x *index.Entry)               { x.Rank, x.Used = e.rank(*x), minute() }

func (e putEngine) Durable(lsn uint64) error {
	if e.o.Durability == Power {
		lsn = e.wal.LastLSN() // some of it may have been stored by another put: wait for that one, too
	}
	return e.durable(lsn)
}

func (e putEngine) Whole(k kv.Key, group uint8) (bool, error) {
	lease := e.shorts.Acquire(e.set) // before the index is asked: what that names stays until then
	v := e.view()
	x, ok, err := v.Get(k, group)
	v.Release()
	var bad error
	if err == nil && ok {
		bad = e.set.Read(x.Loc, func(r *segments.Record) error {
			if r.Key() != k || r.Group() != group {
				return errElsewhere
			}
			return nil
		})
	}
	e.shorts.Release(lease)
	if bad != nil && !read.Passing(bad) { // what cannot be read just now is taken to be whole
		e.reportDamage(k, group, x.Loc, bad)
		return false, nil
	}
	return ok, err
}

// errElsewhere says that the index names a place where another record lies.
var errElsewhere = errors.New("another record lies there")

// written is the model as puts know it.
func (m *Model) written(e *engine) write.Model {
	return write.Model{Model: searched(m.ms), Registered: func() error {
		if !e.catalog.Has(m.ms) {
			return fmt.Errorf("%w: %s", ErrRetired, m.ms.Fingerprint)
		}
		return nil
	}}
}
