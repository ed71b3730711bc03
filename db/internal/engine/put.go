package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// awaitCommit returns when the commit that is under way has ended.
func (e *Engine) awaitCommit() {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
}

// putAttempts bounds how often a put starts over because a block that it rests on went meanwhile: it was deleted, evicted, or
// a longer one took its place. What was stored until then stays, and is found.
const putAttempts = 100

// errElsewhere says that the index names a place where another record lies.
var errElsewhere = errors.New("another record lies there")

// Searched is a loaded model as searches and reads know it.
func Searched(m *catalog.Model) prefix.Model {
	return prefix.Model{Fingerprint: m.Fingerprint, Desc: &m.Desc, GroupTensors: m.GroupTensors}
}

// PutOptions say how a put stores what it gets.
type PutOptions struct {
	Codec       quant.Codec
	Compression quant.Compression
	KeepStates  int // of each group with states, those at the deepest positions stay; 0: all
}

// written is the model as puts know it.
func (e *Engine) written(m *catalog.Model) write.Model {
	return write.Model{Model: Searched(m), Registered: func() error {
		if !e.Catalog.Has(m) {
			return fmt.Errorf("%w: %s", catalog.ErrRetired, m.Fingerprint)
		}
		return nil
	}}
}

// Put stores the rows of a prompt, and makes room for them. extends is the match that it goes on from, or nil.
func (e *Engine) Put(ctx context.Context, m *catalog.Model, p *kv.Prompt, rows kv.Rows, extends *lease.Held, o PutOptions) (sum write.Result, err error) {
	start := time.Now()
	if e.o.Power {
		defer e.rounds.putBegins()()
	}
	model := e.written(m)
	for range putAttempts {
		var last *write.Put // what it has stored stays while room is made for the rest
		err = e.Insist(ctx, func() error {
			w := e.writes.New(model, rows, extends, write.Options{Codec: o.Codec, Compression: o.Compression})
			err := w.Run(ctx, p)
			sum.Add(w.Result)
			if last != nil {
				last.Release()
			}
			last = w
			return err
		})
		last.Release()
		if !write.IsGone(err) || errors.Is(err, vfs.ErrNoSpace) { // that would evict again and again
			break
		}
		e.awaitCommit() // of whoever takes the block out
	}
	if err == nil && o.KeepStates > 0 {
		err = e.writes.ThinStates(model.Model, p, max(2, o.KeepStates))
	}
	e.Count.Put(sum, time.Since(start))
	e.maybeBackground()
	return sum, err
}

// What follows is what puts need of the engine: write.Engine says what each method promises.

// GiveUp ends a reservation.
func (e *Engine) GiveUp(bytes, blocks int64) { e.space.giveUp(bytes, blocks) }

// WasDamaged reports whether a record of block k was once found damaged.
func (e *Engine) WasDamaged(k kv.Key) bool { return e.Catalog.IsFlagged(k) }

// Named reports whether a ref is on block k.
func (e *Engine) Named(k kv.Key) bool { return e.Catalog.IsNamed(k) }

// CommitEviction is Commit of what goes for something that was put since.
func (e *Engine) CommitEviction(build func(t *index.Txn) (op oplog.Remove, blocks int, err error)) error {
	var op oplog.Remove
	var blocks int
	e.commitMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	defer e.commitMu.Unlock()
	if _, err := e.commitLocked(func(t *index.Txn) (_ oplog.Op, err error) {
		if op, blocks, err = build(t); err != nil || len(op.Dead) == 0 {
			return nil, err
		}
		op.Seq = e.seq.Load()
		return op, nil
	}); err != nil {
		return err
	}
	unseen(op.Dead)
	e.Catalog.Bury(op.Dead, true) // what was put since must be durable first
	e.bloomRemoved(int64(blocks))
	return nil
}

// RemoveBlock takes a block without children out of the index.
func (e *Engine) RemoveBlock(t *index.Txn, block index.Entry) ([]oplog.Dead, error) {
	dead, _, err := e.removeBlock(t, block)
	return dead, err
}

// Doom makes tombstones.
func (e *Engine) Doom(dead []oplog.Dead, behind bool) { e.Catalog.Bury(dead, behind) }

// Ranked gives an entry that is put now its rank and the time.
func (e *Engine) Ranked(x *index.Entry) { x.Rank, x.Used = e.rank(*x), minute() }

// Durable returns when the mode's promise holds for a put whose last frame is lsn.
func (e *Engine) Durable(lsn uint64) error {
	if !e.o.Power {
		return nil
	}
	e.rounds.coming.Add(-1) // it is in one
	defer e.rounds.coming.Add(1)
	return e.durable(e.wal.LastLSN()) // some of it may have been stored by another put: wait for that one, too
}

// Whole reports whether the index has a record and its header can be read; one that is damaged is flagged.
func (e *Engine) Whole(k kv.Key, group uint8) (bool, error) {
	lease := e.Segments.AcquireShort() // before the index is asked: what that names stays until then
	v := e.View()
	x, ok, err := v.Get(k, group)
	v.Release()
	var bad error
	if err == nil && ok {
		bad = e.Segments.Read(x.Loc, func(r *segments.Record) error {
			if r.Key() != k || r.Group() != group {
				return errElsewhere
			}
			return nil
		})
	}
	lease.Release()
	if bad != nil && !read.Passing(bad) { // what cannot be read just now is taken to be whole
		e.reportDamage(k, group, x.Loc, bad)
		return false, nil
	}
	return ok, err
}
