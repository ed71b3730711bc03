package engine

import (
	"context"
	"math"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// evictGoal is what an eviction has to reach.
type evictGoal struct{ bytes, blocks int64 }

// evictBatch bounds the leaves that one log frame evicts.
const evictBatch = 256

// evict removes the coldest leaves until nothing is left of the goal or nothing may go. It returns the number of blocks. Their
// bytes come back with the next reclaim.
//
// The goal is asked for anew for each frame, while nobody else evicts or destroys: so whoever evicts at the same time, puts and the
// background, never evict for the same room twice. The caller holds no lock, and goal must take none before commitMu.
func (e *Engine) evict(ctx context.Context, goal func() evictGoal) (blocks int, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return blocks, err
		}
		n, err := e.evictOnce(goal)
		blocks += n
		if err != nil || n == 0 {
			return blocks, err
		}
	}
}

func (e *Engine) evictOnce(goal func() evictGoal) (blocks int, err error) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	want := goal()
	if want.bytes <= 0 && want.blocks <= 0 {
		return 0, nil
	}
	blocks, _, err = e.evictSome(want)
	return blocks, err
}

// evictSome evicts some leaves, in one frame.
func (e *Engine) evictSome(goal evictGoal) (n int, freed int64, err error) {
	var out []kv.Key
	defer func() { e.Pins.End(out) }()
	var op oplog.Remove
	var used []uint32
	walk := leafWalk{}
	e.commitMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	_, err = e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		for n < evictBatch && (freed < goal.bytes || int64(n) < goal.blocks) {
			leaf, ok, err := e.coldest(t, walk)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			out = append(out, leaf.Key)
			dead, bytes, err := e.removeBlock(t, leaf)
			if err == nil {
				err = walk.back(t, leaf)
			}
			if err != nil {
				return nil, err
			}
			op.Dead = append(op.Dead, dead...)
			freed += bytes
			n++
			used = append(used, leaf.Used)
			e.watermark.Store(max(e.watermark.Load(), leaf.Rank&catalog.RankMask))
		}
		if n == 0 {
			return nil, nil
		}
		op.Seq = e.seq.Load()
		return op, nil
	})
	if err == nil {
		unseen(op.Dead)
		e.Catalog.Bury(op.Dead, false)
	}
	e.commitMu.Unlock()
	if err != nil {
		return 0, 0, err
	}
	e.bloomRemoved(int64(n))
	e.Count.Evicted.Add(int64(n))
	for now := minute(); len(used) > 0; used = used[1:] {
		if used[0] != 0 {
			age := min(time.Duration(now)-time.Duration(used[0]), math.MaxInt64/time.Minute)
			e.Count.EvictedAge.Add(age * time.Minute)
		}
	}
	return n, freed, nil
}

// unseen notes of records that nobody rested on them when they went.
func unseen(dead []oplog.Dead) {
	for i := range dead {
		dead[i].Unseen = true
	}
}

// findWatermark sets the eviction watermark, the highest rank that was evicted, to that of the coldest leaf, as if the one before it had just been evicted.
func (e *Engine) findWatermark() error {
	v := e.View()
	defer v.Release()
	coldest := uint64(catalog.RankMask)
	var err error
	v.Models(func(fp kv.Fingerprint, _ index.Counts) bool { // those that have blocks
		err = v.Leaves(fp, nil, func(_ kv.Key, rank uint64) bool {
			coldest = min(coldest, rank&catalog.RankMask)
			return false
		})
		return err == nil
	})
	if err != nil {
		return err
	}
	if coldest != catalog.RankMask {
		e.watermark.Store(coldest)
	}
	return nil
}

// leafWalk is how far a frame's evictions have come in the leaves of each model: what went before is not passed again. A leaf that was in
// use when it was passed is for a later frame.
type leafWalk map[kv.Fingerprint]index.LeafPos

// back has the walk meet the parent of a leaf that went, if that is a colder leaf now.
func (w leafWalk) back(t *index.Txn, leaf index.Entry) error {
	parent, ok, err := t.Get(leaf.Parent, 0)
	if err != nil || !ok || parent.Rank >= w[leaf.Model].Rank {
		return err
	}
	others, err := t.HasChildren(parent.Key)
	if err == nil && !others {
		w[leaf.Model] = index.LeafPos{Rank: parent.Rank}
	}
	return err
}

// coldest picks the leaf to go next and marks it as being evicted: superseded versions of a model first, then by rank.
func (e *Engine) coldest(t *index.Txn, walk leafWalk) (index.Entry, bool, error) {
	for {
		best, found, err := e.coldestNow(t, walk)
		if err != nil || !found || e.Pins.Leave(best.Key) {
			return best, found, err
		}
		// A match came to rest on it meanwhile: there may be another.
	}
}

func (e *Engine) coldestNow(t *index.Txn, walk leafWalk) (index.Entry, bool, error) {
	var best index.Entry
	found, bestOld := false, false
	current := e.currentModels()
	for fp, latest := range current {
		var pick kv.Key
		var rank uint64
		ok := false
		var repinned []kv.Key
		from := walk[fp]
		err := t.Leaves(fp, &from, func(k kv.Key, r uint64) bool {
			if r>>catalog.RankBits == catalog.ClassPinned {
				return false
			}
			if e.Catalog.Class(k) == catalog.ClassPinned {
				repinned = append(repinned, k)
				return true
			}
			if e.Pins.Pinned(k) {
				return true
			}
			pick, rank, ok = k, r, true
			return false
		})
		if err != nil {
			return best, false, err
		}
		for _, k := range repinned { // so that the next walk stops before them
			if err := recovery.Rerank(t, e.Catalog, k); err != nil {
				return best, false, err
			}
		}
		if !ok {
			continue
		}
		walk[fp] = index.LeafPos{Rank: rank} // the parents of leaves that go come as late, or are met by walk.back
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
func (e *Engine) currentModels() map[kv.Fingerprint]bool {
	return e.Catalog.Latest()
}

// removeBlock takes a block without children out of the index, with the records of all its groups. Its parent, if that
// has no other child, becomes a leaf with the later recency of the two, in its own class.
func (e *Engine) removeBlock(t *index.Txn, block index.Entry) (dead []oplog.Dead, bytes int64, err error) {
	var groups []index.Entry
	if err := t.Groups(block.Key, func(g index.Entry) bool {
		groups = append(groups, g)
		return true
	}); err != nil {
		return nil, 0, err
	}
	for _, g := range groups {
		dead = append(dead, oplog.Dead{Key: g.Key, Group: g.Group, Loc: g.Loc})
		bytes += g.Loc.Length
		if err := t.Remove(g.Key, g.Group); err != nil {
			return nil, 0, err
		}
	}
	return dead, bytes, recovery.Rerank(t, e.Catalog, block.Parent)
}

// bloomRemoved counts removals, which the Bloom filter cannot forget.
func (e *Engine) bloomRemoved(n int64) {
	if e.removed.Add(n) > max(8192, e.Counts().Blocks/8) {
		e.Signal()
	}
}
