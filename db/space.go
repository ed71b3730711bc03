package db

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// reserve takes room for a record of so many bytes, as one of so many new blocks, if there is some without evicting.
func (e *engine) reserve(bytes, blocks int64) bool {
	e.measureOnce()
	if !e.diskHas(bytes) || !e.space.reserve(bytes, e.o.Budget-e.reserveBytes()) {
		return false
	}
	if e.reserveBlocks(blocks) {
		return true
	}
	e.space.giveUp(bytes, 0)
	return false
}

func (e *engine) reserveBlocks(blocks int64) bool {
	u := &e.space
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.o.MaxBlocks > 0 && blocks > 0 && e.counts().Blocks+u.blocks+blocks > e.o.MaxBlocks {
		return false
	}
	u.blocks += blocks
	return true
}

// diskHas reports whether the file system can take so many bytes and keep its reserve.
func (e *engine) diskHas(bytes int64) bool {
	if e.o.MinFree == 0 {
		return true
	}
	free, _, err := e.fs.Space(e.dir)
	return err != nil || free >= uint64(bytes+e.o.MinFree)
}

// makeRoom evicts until it could reserve room for a record, or returns ErrNoSpace. The caller holds no lock and not the
// gate.
func (e *engine) makeRoom(ctx context.Context, bytes, blocks int64) error {
	e.measure()
	if e.hopeless(bytes) {
		return e.full(bytes)
	}
	patience := 100 // what no match keeps comes back soon
	for !e.reserve(bytes, blocks) {
		if err := ctx.Err(); err != nil {
			return err
		}
		before, held, undone := e.settle(ctx)
		if undone != nil && !errors.Is(undone, errUndestroyed) {
			return undone
		}
		if e.reserve(bytes, blocks) {
			return nil
		}
		want := evictGoal{}
		if over := before + bytes + e.reserveBytes() - e.o.Budget; over > 0 {
			if held >= over { // enough is evicted: puts that fail under a long match must not empty the store
				if patience--; patience < 0 || e.set.Kept() >= over {
					return errors.Join(e.full(bytes), undone)
				}
				e.awaitGlances()
				continue
			}
			want.bytes = over - held
			if _, dead := e.deadSegments(); dead > 0 {
				if freed, err := e.rewriteDead(ctx, over); err != nil {
					return err
				} else if freed > 0 {
					continue
				}
			}
		}
		if e.o.MaxBlocks > 0 && blocks > 0 {
			want.blocks = max(0, e.counts().Blocks+e.space.unpublished()+blocks-e.o.MaxBlocks)
		}
		if want == (evictGoal{}) {
			want.bytes = bytes // the disk is short, not the budget
		}
		evicted, err := e.evict(ctx, want)
		if err != nil {
			return err
		}
		if want.bytes > 0 {
			if err := e.reclaim(ctx); err != nil && !errors.Is(err, errUndestroyed) {
				return err
			}
			if e.reserve(bytes, blocks) {
				return nil
			}
			// Where pages cannot be punched, space comes back when a whole segment is dead: a checkpoint finds those.
			if err := e.checkpoint(ctx); err != nil && !errors.Is(err, errUndestroyed) {
				return err
			}
		}
		if e.reserve(bytes, blocks) {
			return nil
		}
		if evicted == 0 || (want.blocks == 0 && e.held() > 0 && e.space.used() >= before) {
			if patience--; patience < 0 || e.held() <= e.set.Kept() {
				return errors.Join(e.full(bytes), undone)
			}
			e.awaitGlances()
		}
	}
	return nil
}

// settle destroys what may go, and returns what is used then, and how much of that waits. While somebody else is at it, the two do
// not fit together, and blocks would be evicted for room that is just coming back. With [errUndestroyed] both are told, too.
func (e *engine) settle(ctx context.Context) (used, held int64, err error) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	err = e.reclaimLocked(ctx)
	if err != nil && !errors.Is(err, errUndestroyed) {
		return 0, 0, err
	}
	e.measure()
	return e.space.used(), e.held(), err
}

// hopeless reports whether a record of so many bytes would not fit if nothing else were stored: evicting is no use then.
func (e *engine) hopeless(bytes int64) bool {
	if bytes > e.o.Budget-e.logReserve()-minBloomBytes {
		return true
	}
	if e.o.MinFree == 0 {
		return false
	}
	free, _, err := e.fs.Space(e.dir)
	return err == nil && int64(min(free, math.MaxInt64/2))+e.space.used() < bytes+e.o.MinFree
}

func (e *engine) full(bytes int64) error {
	n, held := e.set.Pending()
	return fmt.Errorf("%w: %d bytes are needed, %d of a budget of %d are used, and nothing more can be evicted (%d records, %d bytes wait for open leases)",
		ErrNoSpace, bytes, e.space.used(), e.o.Budget, n, held)
}

// measureOnce makes up for what Open left out: asking for the size of every segment takes its time.
func (e *engine) measureOnce() {
	if !e.measured.Load() {
		e.measure()
	}
}

// measure asks the file system what the store's files occupy.
func (e *engine) measure() int64 {
	bloom := int64(minBloomBytes)
	total := e.space.measure(func() int64 {
		total := e.set.Allocated()
		for _, name := range []string{formatName, lockName, indexName, bloomName} {
			if info, err := e.fs.Stat(e.path(name)); err == nil {
				total += info.Allocated
				switch name {
				case indexName:
					e.indexBytes.Store(info.Allocated)
				case bloomName:
					bloom = max(bloom, info.Allocated)
				}
			}
		}
		return total
	})
	e.bloomBytes.Store(bloom)
	e.measured.Store(true)
	most := total
	for _, name := range []string{indexName, bloomName} { // what becomes of them is in the reserve
		if info, err := e.fs.Stat(e.path(name + ".tmp")); err == nil {
			most += info.Allocated
		}
	}
	e.count.highWater(most)
	return total
}

// evictGoal is what an eviction has to reach.
type evictGoal struct{ bytes, blocks int64 }

// evictBatch bounds the leaves that one log frame evicts.
const evictBatch = 256

// evict removes the coldest leaves until the goal is reached or nothing may go. It returns the number of blocks. Their
// bytes come back with the next reclaim.
func (e *engine) evict(ctx context.Context, goal evictGoal) (blocks int, err error) {
	for goal.bytes > 0 || goal.blocks > 0 {
		if err := ctx.Err(); err != nil {
			return blocks, err
		}
		n, freed, err := e.evictSome(goal)
		if err != nil {
			return blocks, err
		}
		if n == 0 {
			return blocks, nil
		}
		blocks += n
		goal.bytes -= freed
		goal.blocks -= int64(n)
	}
	return blocks, nil
}

// evictSome evicts some leaves, in one frame.
func (e *engine) evictSome(goal evictGoal) (n int, freed int64, err error) {
	var out []kv.Key
	defer func() { e.endEvicting(out) }()
	var op opRemove
	e.logMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	_, err = e.commitLocked(frameRemove, func(t *index.Txn) (any, error) {
		for n < evictBatch && (freed < goal.bytes || int64(n) < goal.blocks) {
			leaf, ok, err := e.coldest(t)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			out = append(out, leaf.Key)
			dead, bytes, err := e.removeBlock(t, leaf)
			if err != nil {
				return nil, err
			}
			op.Dead = append(op.Dead, dead...)
			freed += bytes
			n++
			e.floor.Store(max(e.floor.Load(), leaf.Rank&rankMask))
		}
		if n == 0 {
			return nil, nil
		}
		return op, nil
	})
	if err == nil {
		e.doom(op.Dead, false)
	}
	e.logMu.Unlock()
	if err != nil {
		return 0, 0, err
	}
	e.bloomRemoved(int64(n))
	e.count.evicted.Add(int64(n))
	return n, freed, nil
}

// findFloor sets the floor of ranks to that of the coldest leaf, as if the one before it had just been evicted.
func (e *engine) findFloor() error {
	v := e.view()
	defer v.Release()
	floor := uint64(rankMask)
	for fp := range e.currentModels() {
		if err := v.Leaves(fp, nil, func(_ kv.Key, rank uint64) bool {
			floor = min(floor, rank&rankMask)
			return false
		}); err != nil {
			return err
		}
	}
	if floor != rankMask {
		e.floor.Store(floor)
	}
	return nil
}

// coldest picks the leaf to go next and marks it as being evicted: superseded versions of a model first, then by rank.
func (e *engine) coldest(t *index.Txn) (index.Entry, bool, error) {
	for {
		best, found, err := e.coldestNow(t)
		if err != nil || !found || e.startEvicting(best.Key) {
			return best, found, err
		}
		// A match came to rest on it meanwhile: there may be another.
	}
}

func (e *engine) coldestNow(t *index.Txn) (index.Entry, bool, error) {
	var best index.Entry
	found, bestOld := false, false
	current := e.currentModels()
	for fp, latest := range current {
		var pick kv.Key
		var rank uint64
		ok := false
		var repinned []kv.Key
		err := t.Leaves(fp, nil, func(k kv.Key, r uint64) bool {
			if r>>rankBits == classPinned {
				return false
			}
			if e.class(k) == classPinned {
				repinned = append(repinned, k)
				return true
			}
			if e.isPinned(k) {
				return true
			}
			pick, rank, ok = k, r, true
			return false
		})
		if err != nil {
			return best, false, err
		}
		for _, k := range repinned { // so that the next walk stops before them
			if err := e.rerank(t, k); err != nil {
				return best, false, err
			}
		}
		if !ok {
			continue
		}
		better := !found || (!latest && !bestOld) || (!latest == bestOld && rank < best.Rank)
		if !better {
			continue
		}
		entry, stored, err := t.Get(pick, 0)
		if err != nil {
			return best, false, err
		}
		if stored {
			best, found, bestOld = entry, true, !latest
		}
	}
	return best, found, nil
}

// currentModels tells for every model whether it is the latest version of its name.
func (e *engine) currentModels() map[kv.Fingerprint]bool {
	e.stateMu.RLock()
	defer e.stateMu.RUnlock()
	latest := e.state.latest()
	out := make(map[kv.Fingerprint]bool, len(e.state.models))
	for fp, m := range e.state.models {
		out[fp] = latest[m.desc.Name] == m
	}
	return out
}

func (e *engine) isPinned(k kv.Key) bool {
	e.pinMu.Lock()
	defer e.pinMu.Unlock()
	return e.pinned[k] > 0
}

// startEvicting marks k, so that no match comes to rest on it any more.
func (e *engine) startEvicting(k kv.Key) bool {
	e.pinMu.Lock()
	defer e.pinMu.Unlock()
	if e.pinned[k] > 0 {
		return false
	}
	e.evicting[k]++
	return true
}

// removeBlock takes a block without children out of the index, with the records of all its groups. Its parent, if that
// has no other child, becomes a leaf with the later recency of the two, in its own class.
func (e *engine) removeBlock(t *index.Txn, block index.Entry) (dead []opDead, bytes int64, err error) {
	var groups []index.Entry
	if err := t.Groups(block.Key, func(g index.Entry) bool {
		groups = append(groups, g)
		return true
	}); err != nil {
		return nil, 0, err
	}
	for _, g := range groups {
		dead = append(dead, opDead{Key: g.Key, Group: g.Group, Loc: toOpLoc(g.Loc)})
		bytes += g.Loc.Length
		if err := t.Remove(g.Key, g.Group); err != nil {
			return nil, 0, err
		}
	}
	return dead, bytes, e.rerank(t, block.Parent)
}

// bloomRemoved counts removals, which the Bloom filter cannot forget.
func (e *engine) bloomRemoved(n int64) {
	if e.removed.Add(n) > max(8192, e.counts().Blocks/8) {
		e.signal()
	}
}
