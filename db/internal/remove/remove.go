package remove

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Remover deletes. It is safe for concurrent use; its exported fields do not change.
type Remover struct {
	Ledger      *commit.Ledger
	Checkpoints *checkpoint.Checkpoints
	Journals    *journals.Set
	Filter      *filter.Filter
	Hasher      kv.Hasher
	Search      *prefix.Store
	Pins        *lease.Pins
	Workers     *read.Workers
	Count       *tally.Counters
	Wake        func() // has the worker do what was left

	underway atomic.Int32
}

// Underway reports whether a deletion goes on: it destroys what it removed itself, once for all of it.
func (r *Remover) Underway() bool { return r.underway.Load() > 0 }

// Deleted says what a deletion took: db.Deleted.
type Deleted struct {
	Blocks  int
	Records int
	Refs    int
	Bytes   int64

	Sessions int // files; Bytes has their length, too
}

// Delete removes a prefix of a model, with all that continues it, and returns when that is durable.
func (r *Remover) Delete(ctx context.Context, m *catalog.Model, prefix *kv.Prompt) (Deleted, error) {
	return r.delete(ctx, r.removalOf(m, prefix))
}

// DeleteScope removes everything that was stored for a scope, with its refs, and returns when that is durable. The scope's session goes last: as
// long as it is there, the deletion is not done.
func (r *Remover) DeleteScope(ctx context.Context, id kv.ScopeID) (Deleted, error) {
	var from kv.Key // what went before is not passed again
	pick := func(t *index.Txn) (keys []kv.Key, err error) {
		enough := func() bool { return len(keys) > removeBatch } // each has a record at least
		err = t.ScopeRoots(id, from, func(k kv.Key) bool {
			keys = append(keys, k)
			return !enough()
		})
		if err == nil && !enough() && from != (kv.Key{}) { // in front of it there is what was put since
			err = t.ScopeRoots(id, kv.Key{}, func(k kv.Key) bool {
				if bytes.Compare(k[:], from[:]) >= 0 {
					return false
				}
				keys = append(keys, k)
				return !enough()
			})
		}
		if len(keys) > 0 {
			from = keys[0]
		}
		return keys, err
	}
	named := func(r *oplog.Ref) bool { return !r.Trail.Whole(r.Tokens) || r.Trail.Scope() == id }
	what := &removal{pick: pick, named: named}
	out, err := r.delete(ctx, what)
	if err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) && !errors.Is(err, commit.ErrNoBarrier) { // with these, rows and refs are gone for good
		return out, err
	}
	var late error
	session, serr := r.Journals.Delete(id, func() error {
		rest := r.deleteRest(what, &out)
		if errors.Is(rest, commit.ErrNoBarrier) {
			late, rest = rest, nil
		}
		return rest
	})
	out.Sessions += session.Files
	out.Bytes += session.Bytes
	return out, errors.Join(err, late, serr)
}

// deleteRest is delete of what little was stored since.
func (r *Remover) deleteRest(what *removal, out *Deleted) error {
	for {
		lsn, more, err := r.deleteSome(what, out)
		switch {
		case err != nil:
			return err
		case more:
			continue
		case lsn == 0:
			lsn = r.Ledger.WAL.LastLSN() // as in delete
		}
		return r.Ledger.Barrier(lsn)
	}
}

// below returns what tells the refs to a prompt that begins with prefix, of which nothing may be stored any more.
func (r *Remover) below(fp kv.Fingerprint, prefix *kv.Prompt) func(*oplog.Ref) bool {
	n := len(prefix.Tokens)
	trail := sync.OnceValue(func() kv.Trail { return r.Hasher.Trail(fp, prefix) })
	return func(r *oplog.Ref) bool {
		return r.Model == fp && n > 0 && (!r.Trail.Whole(r.Tokens) || trail().Begins(n, r.Trail, r.Tokens))
	}
}

// What one log frame removes is bounded: a frame has a largest size, and puts wait meanwhile. So is what is removed before it is destroyed:
// every log file repeats the list of that. Variables for tests.
var (
	removeBatch  = 64      // records
	reclaimBatch = 1 << 18 // records
)

// removalOf is the removal of a prefix, with all that continues it.
func (r *Remover) removalOf(m *catalog.Model, prefix *kv.Prompt) *removal {
	return &removal{pick: func(t *index.Txn) ([]kv.Key, error) { return r.holding(m, t, prefix) }, named: r.below(m.Fingerprint, prefix)}
}

// delete makes a removal, durably: as one frame, or where there are more records than one has, as several, the deepest blocks first. Others
// may put and match in between.
func (r *Remover) delete(ctx context.Context, what *removal) (Deleted, error) {
	if err := r.Ledger.Poisoned(); err != nil {
		return Deleted{}, err
	}
	if err := ctx.Err(); err != nil {
		return Deleted{}, err
	}
	r.underway.Add(1)
	defer func() {
		if r.underway.Add(-1) == 0 && r.Ledger.Segments.Ripe() {
			r.Wake() // what was given up by matches since this one began to destroy
		}
	}()
	var out Deleted
	pace := r.Workers.HousePace()
	for last, reclaimed := uint64(0), 0; ; {
		lsn, more, err := r.deleteSome(what, &out)
		if err != nil && last != 0 { // what has gone stays gone; on a full disk its room is what the rest needs
			err = errors.Join(err, r.Ledger.Barrier(last))
			if errors.Is(err, vfs.ErrNoSpace) && out.Records > reclaimed && r.Ledger.Poisoned() == nil && r.Checkpoints.Reclaim(ctx) == nil {
				reclaimed = out.Records
				continue
			}
		}
		if err != nil {
			return out, err
		}
		if lsn == 0 { // what took it, another deletion or an eviction, may not be durable yet
			lsn = max(last, r.Ledger.WAL.LastLSN())
		}
		if last = lsn; more && out.Records-reclaimed < reclaimBatch {
			pace.Rest()
			continue
		}
		reclaimed = out.Records
		err = r.Ledger.Barrier(last)
		if err == nil && out.Records > 0 {
			err = r.Checkpoints.Reclaim(ctx)
		}
		// Neither of these keeps the rest from going. Once it has gone, both are tried again, for all of it.
		if !more || err != nil && !errors.Is(err, commit.ErrNoBarrier) && !errors.Is(err, checkpoint.ErrNotDestroyed) {
			return out, err
		}
	}
}

// deleteSome is one frame of delete; more says that something is left.
func (r *Remover) deleteSome(what *removal, out *Deleted) (lsn uint64, more bool, err error) {
	c, err := r.Ledger.Begin()
	if err != nil {
		return 0, false, err
	}
	defer c.End()

	// Build.
	var took Deleted
	op := oplog.Remove{Deleted: true}
	what.gone = what.gone[:0]
	roots, err := what.pick(c.Index)
	if err != nil {
		return 0, false, err
	}
	for _, k := range roots {
		if more, err = r.removeSubtree(c, k, what, &op, &took); err != nil {
			return 0, false, err
		}
		if more {
			break
		}
	}
	named := what.named
	if more { // it is asked of all refs: the last frame does
		named = nil
	}
	if op.Refs, err = r.refsOf(c.Index, op.Dead, named); err != nil {
		return 0, false, err
	}
	if len(op.Dead) == 0 && len(op.Refs) == 0 {
		return 0, false, nil
	}
	op.Seq = r.Ledger.Seq.Load()

	// Log, publish; then no new match finds the blocks, and what rested on them moves up; and the catalog follows.
	if lsn, err = c.Log(op); err != nil {
		return 0, false, err
	}
	if err = c.Publish(); err != nil {
		return 0, false, err
	}
	r.moveUp(what.gone, op.Dead)
	c.Apply()

	r.Filter.Removed(int64(took.Blocks))
	r.Count.Deleted.Add(int64(took.Blocks))
	out.Blocks += took.Blocks
	out.Bytes += took.Bytes
	out.Records += len(op.Dead)
	out.Refs += len(op.Refs)
	return lsn, more, nil
}

// moveUp has what rested on blocks that were removed, the deepest first, rest on those before them, and notes of their records whether a match
// may still read them. No new match finds the blocks any more, and nobody evicts meanwhile.
func (r *Remover) moveUp(gone []removed, dead []oplog.Dead) {
	for _, b := range gone {
		if !r.Pins.Removed(b.key, b.parent) {
			unseen(dead[:b.records])
		}
		dead = dead[b.records:]
	}
}

// unseen notes of records that no match rests on them.
func unseen(dead []oplog.Dead) {
	for i := range dead {
		dead[i].Unseen = true
	}
}

// refsOf returns the names of the refs on blocks that are dead, and of those that named says yes to whose block is not stored; named may be nil.
func (r *Remover) refsOf(t *index.Txn, dead []oplog.Dead, named func(*oplog.Ref) bool) (names []string, err error) {
	gone := map[kv.Key]bool{}
	for _, d := range dead {
		if !gone[d.Key] {
			gone[d.Key] = true
			names = append(names, r.Ledger.Catalog.RefsOn(d.Key)...)
		}
	}
	if named != nil {
		others, err := r.Ledger.Catalog.RefsWhere(func(r *oplog.Ref) (bool, error) {
			if gone[r.Block] || !named(r) {
				return false, nil
			}
			_, stored, err := t.Get(r.Block, 0) // then it says itself whether it goes
			return !stored, err
		})
		if err != nil {
			return nil, err
		}
		names = append(names, others...)
	}
	slices.Sort(names)
	return names, nil
}
