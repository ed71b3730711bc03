package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Deleted says what a deletion took: db.Deleted.
type Deleted struct {
	Blocks  int
	Records int
	Refs    int
	Bytes   int64

	Sessions int // files; Bytes has their length, too
}

// Delete removes a prefix of a model, with all that continues it, and returns when that is durable.
func (e *Engine) Delete(ctx context.Context, m *catalog.Model, prefix *kv.Prompt) (Deleted, error) {
	return e.delete(ctx, e.removalOf(m, prefix))
}

// DeleteScope removes everything that was stored for a scope, with its refs, and returns when that is durable. The scope's session goes last: as
// long as it is there, the deletion is not done.
func (e *Engine) DeleteScope(ctx context.Context, id kv.ScopeID) (Deleted, error) {
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
	out, err := e.delete(ctx, what)
	if err != nil && !errors.Is(err, ErrNotDestroyed) && !errors.Is(err, ErrNoBarrier) { // with these, rows and refs are gone for good
		return out, err
	}
	var late error
	serr := e.deleteSession(id, &out, func() error {
		rest := e.deleteRest(what, &out)
		if errors.Is(rest, ErrNoBarrier) {
			late, rest = rest, nil
		}
		return rest
	})
	return out, errors.Join(err, late, serr)
}

// deleteRest is delete of what little was stored since.
func (e *Engine) deleteRest(what *removal, out *Deleted) error {
	for {
		lsn, more, err := e.deleteSome(what, out)
		switch {
		case err != nil:
			return err
		case more:
			continue
		case lsn == 0:
			lsn = e.wal.LastLSN() // as in delete
		}
		return e.Barrier(lsn)
	}
}

// below returns what tells the refs to a prompt that begins with prefix, of which nothing may be stored any more.
func (e *Engine) below(fp kv.Fingerprint, prefix *kv.Prompt) func(*oplog.Ref) bool {
	n := len(prefix.Tokens)
	trail := sync.OnceValue(func() kv.Trail { return e.Hasher.Trail(fp, prefix) })
	return func(r *oplog.Ref) bool {
		return r.Model == fp && n > 0 && (!r.Trail.Whole(r.Tokens) || trail().Begins(n, r.Trail, r.Tokens))
	}
}

// holding returns the blocks that hold the prompt's last token, after the same prefix: the block of the chain itself, and
// every stored block that goes on differently after it.
func (e *Engine) holding(m *catalog.Model, t *index.Txn, p *kv.Prompt) ([]kv.Key, error) {
	chain := e.Hasher.Chain(m.Fingerprint, m.Desc.BlockTokens, p)
	n := len(p.Tokens)
	if n == 0 {
		return nil, nil
	}
	last := chain.Len() - 1
	start, _ := chain.Block(last)
	hashes := e.Hasher.AppendTokenHashes(nil, p, start, n)
	var keys []kv.Key
	err := t.ChildrenLike(chain.Parent(last), chain.Scope(last), hashes, func(k kv.Key) bool {
		keys = append(keys, k)
		return true
	})
	if err != nil {
		return nil, err
	}
	// Two bytes a token are a hint: compare the tokens.
	var failed error
	keys = slices.DeleteFunc(keys, func(k kv.Key) bool {
		entry, ok, err := t.Get(k, 0)
		if err != nil || !ok {
			failed = errors.Join(failed, err) // what is not known to be gone is not deleted
			return true
		}
		shared, err := e.Search.SharedTokens(p, entry)
		if read.Passing(err) { // it may be another prompt's
			failed = errors.Join(failed, err)
		}
		return err == nil && start+shared < n
	})
	return keys, failed
}

// What one log frame removes is bounded: a frame has a largest size, and puts wait meanwhile. So is what is removed before it is destroyed:
// every log file repeats the list of that. Variables for tests.
var (
	removeBatch  = 64      // records
	reclaimBatch = 1 << 18 // records
)

// removal is what a deletion removes: the subtrees of the blocks that pick names, with the refs on them, and the refs to what is not stored any more
// that named says yes to. pick may leave out what is behind more blocks than a frame has.
type removal struct {
	pick  func(t *index.Txn) ([]kv.Key, error)
	named func(*oplog.Ref) bool

	// Where the last frame was full: the next one goes on there, not at the root of a long chain.
	root kv.Key
	way  []level
	// Of blocks with more children than a frame removes, how far they have gone: what went before is passed once more only, in the end.
	passed map[kv.Key]index.ChildPos

	gone []removed // by the last frame
}

// removed is a block that was taken out, with so many records.
type removed struct {
	key, parent kv.Key
	records     int
}

// level are blocks with one parent on a deletion's way down. The last of each is an ancestor of all levels that follow, and those before it
// are for later.
type level struct {
	keys []kv.Key
	dead int // records that were removed before, in this frame; -1: not known
}

// removalOf is the removal of a prefix, with all that continues it.
func (e *Engine) removalOf(m *catalog.Model, prefix *kv.Prompt) *removal {
	return &removal{pick: func(t *index.Txn) ([]kv.Key, error) { return e.holding(m, t, prefix) }, named: e.below(m.Fingerprint, prefix)}
}

// delete makes a removal, durably: as one frame, or where there are more records than one has, as several, the deepest blocks first. Others
// may put and match in between.
func (e *Engine) delete(ctx context.Context, what *removal) (Deleted, error) {
	if err := e.Poisoned(); err != nil {
		return Deleted{}, err
	}
	if err := ctx.Err(); err != nil {
		return Deleted{}, err
	}
	e.deletions.Add(1)
	defer func() {
		if e.deletions.Add(-1) == 0 && e.Segments.Ripe() {
			e.Signal() // what was given up by matches since this one began to destroy
		}
	}()
	var out Deleted
	pace := e.workers.HousePace()
	for last, reclaimed := uint64(0), 0; ; {
		lsn, more, err := e.deleteSome(what, &out)
		if err != nil && last != 0 { // what has gone stays gone; on a full disk its room is what the rest needs
			err = errors.Join(err, e.Barrier(last))
			if errors.Is(err, vfs.ErrNoSpace) && out.Records > reclaimed && e.Poisoned() == nil && e.reclaim(ctx) == nil {
				reclaimed = out.Records
				continue
			}
		}
		if err != nil {
			return out, err
		}
		if lsn == 0 { // what took it, another deletion or an eviction, may not be durable yet
			lsn = max(last, e.wal.LastLSN())
		}
		if last = lsn; more && out.Records-reclaimed < reclaimBatch {
			pace.Rest()
			continue
		}
		reclaimed = out.Records
		err = e.Barrier(last)
		if err == nil && out.Records > 0 {
			err = e.reclaim(ctx)
		}
		// Neither of these keeps the rest from going. Once it has gone, both are tried again, for all of it.
		if !more || err != nil && !errors.Is(err, ErrNoBarrier) && !errors.Is(err, ErrNotDestroyed) {
			return out, err
		}
	}
}

// deleteSome is one frame of delete; more says that something is left.
func (e *Engine) deleteSome(what *removal, out *Deleted) (lsn uint64, more bool, err error) {
	var took Deleted
	op := oplog.Remove{Deleted: true}
	what.gone = what.gone[:0]
	e.commitMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	defer e.commitMu.Unlock()
	lsn, err = e.commitBoth(func(t *index.Txn) (oplog.Op, error) {
		roots, err := what.pick(t)
		if err != nil {
			return nil, err
		}
		for _, k := range roots {
			if more, err = e.removeSubtree(t, k, what, &op, &took); err != nil {
				return nil, err
			}
			if more {
				break
			}
		}
		named := what.named
		if more { // it is asked of all refs: the last frame does
			named = nil
		}
		if op.Refs, err = e.refsOf(t, op.Dead, named); err != nil || len(op.Dead) == 0 && len(op.Refs) == 0 {
			return nil, err
		}
		op.Seq = e.seq.Load()
		return op, nil
	}, func() { e.moveUp(what.gone, op.Dead) })
	if err != nil || lsn == 0 {
		return 0, false, err
	}
	e.bloomRemoved(int64(took.Blocks))
	e.Count.Deleted.Add(int64(took.Blocks))
	out.Blocks += took.Blocks
	out.Bytes += took.Bytes
	out.Records += len(op.Dead)
	out.Refs += len(op.Refs)
	return lsn, more, nil
}

// before is the block that one hangs from; zero for the first of a prompt.
func before(block index.Entry) kv.Key {
	if block.First == 0 {
		return kv.Key{}
	}
	return block.Parent
}

// moveUp has what rested on blocks that were removed, the deepest first, rest on those before them, and notes of their records whether a match
// may still read them. No new match finds the blocks any more, and the caller holds commitMu: nobody evicts meanwhile.
func (e *Engine) moveUp(gone []removed, dead []oplog.Dead) {
	for _, b := range gone {
		if !e.Pins.Removed(b.key, b.parent) {
			unseen(dead[:b.records])
		}
		dead = dead[b.records:]
	}
}

// refsOf returns the names of the refs on blocks that are dead, and of those that named says yes to whose block is not stored; named may be nil.
// The caller holds commitMu.
func (e *Engine) refsOf(t *index.Txn, dead []oplog.Dead, named func(*oplog.Ref) bool) (names []string, err error) {
	gone := map[kv.Key]bool{}
	for _, d := range dead {
		if !gone[d.Key] {
			gone[d.Key] = true
			names = append(names, e.Catalog.RefsOn(d.Key)...)
		}
	}
	if named != nil {
		others, err := e.Catalog.RefsWhere(func(r *oplog.Ref) (bool, error) {
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

// removeSubtree removes block k and everything below it, deepest first; more says that op is full before that is done.
func (e *Engine) removeSubtree(t *index.Txn, k kv.Key, what *removal, op *oplog.Remove, out *Deleted) (more bool, err error) {
	way := what.way
	if what.way = nil; len(way) == 0 || what.root != k {
		way = []level{{keys: []kv.Key{k}, dead: -1}}
	}
	for i := range way { // others may have put below them since, and the last frame may not have been written
		way[i].dead = -1
	}
	what.root = k
	empty := false // what is below the block has been removed, or cannot be
	for len(way) > 0 {
		at := &way[len(way)-1]
		if len(at.keys) == 0 {
			empty = at.dead == len(op.Dead)
			way = way[:len(way)-1]
			continue
		}
		if len(op.Dead) >= removeBatch {
			what.way = way
			return true, nil
		}
		k := at.keys[len(at.keys)-1]
		if !empty {
			below, err := what.someChildren(t, k)
			if err != nil {
				return false, err
			}
			if len(below) > 0 {
				way = append(way, level{below, len(op.Dead)})
				continue
			}
		}
		empty = false
		at.keys = at.keys[:len(at.keys)-1]
		block, ok, err := t.Get(k, 0)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		dead, bytes, err := e.removeBlock(t, block)
		if err != nil {
			return false, err
		}
		delete(what.passed, k)
		what.gone = append(what.gone, removed{block.Key, before(block), len(dead)})
		op.Dead = append(op.Dead, dead...)
		out.Blocks++
		out.Bytes += bytes
	}
	return false, nil
}

// someChildren are children of a block that are still there: where there are many, as many as one frame removes.
func (r *removal) someChildren(t *index.Txn, k kv.Key) (keys []kv.Key, err error) {
	some := func(from index.ChildPos) (first index.ChildPos, err error) {
		err = t.Children(k, &from, func(child kv.Key, _ kv.ScopeID) bool {
			keys = append(keys, child)
			return len(keys) < removeBatch
		})
		return from, err
	}
	from, known := r.passed[k]
	first, err := some(from)
	if known && err == nil && len(keys) == 0 { // in front of it there is what was put since
		delete(r.passed, k)
		first, err = some(index.ChildPos{})
	}
	if len(keys) == removeBatch {
		if r.passed == nil {
			r.passed = map[kv.Key]index.ChildPos{}
		}
		r.passed[k] = first
	}
	return keys, err
}
