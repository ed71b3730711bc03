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
	return e.evictSome(want)
}

// evictSome evicts some leaves, in one frame.
func (e *Engine) evictSome(goal evictGoal) (n int, err error) {
	var out []kv.Key
	var freed int64
	defer func() { e.Pins.End(out) }()
	var op oplog.Remove
	var used []uint32
	e.commitMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	_, err = e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		walks := e.leafWalks(t)
		for n < evictBatch && (freed < goal.bytes || int64(n) < goal.blocks) {
			leaf, walk, err := e.coldest(t, walks)
			if err != nil {
				return nil, err
			}
			if walk == nil {
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
		return 0, err
	}
	e.bloomRemoved(int64(n))
	e.Count.Evicted.Add(int64(n))
	for now := minute(); len(used) > 0; used = used[1:] {
		if used[0] != 0 {
			age := min(time.Duration(now)-time.Duration(used[0]), math.MaxInt64/time.Minute)
			e.Count.EvictedAge.Add(age * time.Minute)
		}
	}
	return n, nil
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

// leafWalk is how far a frame's evictions have come in the leaves of a model: what went before is not passed again. A leaf that was in
// use when it was passed is for a later frame.
type leafWalk struct {
	model kv.Fingerprint
	old   bool // a later version of the model is registered
	from  index.LeafPos
	known bool          // next and more are what they were found to be: no leaf of the model went since, and next did not come into use
	more  bool          // there is a next
	next  index.LeafPos // the model's coldest leaf that may go
}

// leafWalks begins those of all registered models that have blocks. They hold for one frame: the commit lock keeps models and refs as they
// are, and what changes among the leaves of a model is what the frame removes there.
func (e *Engine) leafWalks(t *index.Txn) (walks []*leafWalk) {
	latest := e.Catalog.Latest()
	t.Models(func(fp kv.Fingerprint, _ index.Counts) bool {
		if is, registered := latest[fp]; registered {
			walks = append(walks, &leafWalk{model: fp, old: !is})
		}
		return true
	})
	return walks
}

// back has the walk look anew after a leaf of its model went, and meet its parent, if that is a colder leaf now.
func (w *leafWalk) back(t *index.Txn, leaf index.Entry) error {
	w.known = false
	parent, ok, err := t.Get(leaf.Parent, 0)
	if err != nil || !ok || parent.Rank >= w.from.Rank {
		return err
	}
	others, err := t.HasChildren(parent.Key)
	if err == nil && !others {
		w.from = index.LeafPos{Rank: parent.Rank}
	}
	return err
}

// before reports whether the next leaf of w goes before that of x: superseded versions of a model first, then by rank.
func (w *leafWalk) before(x *leafWalk) bool {
	if w.old != x.old {
		return w.old
	}
	return w.next.Rank < x.next.Rank
}

// coldest picks the leaf to go next and marks it as being evicted. It returns the walk that has come to it, nil if no leaf may go.
func (e *Engine) coldest(t *index.Txn, walks []*leafWalk) (leaf index.Entry, walk *leafWalk, err error) {
	for {
		var first *leafWalk
		for _, w := range walks {
			if !w.known {
				if err := e.walkOn(t, w); err != nil {
					return leaf, nil, err
				}
			}
			if w.more && (first == nil || w.before(first)) {
				first = w
			}
		}
		if first == nil {
			return leaf, nil, nil
		}
		leaf, stored, err := t.Get(first.next.Key, 0)
		switch {
		case err != nil:
			return leaf, nil, err
		case !stored:
			first.more = false
		case e.Pins.Leave(leaf.Key):
			return leaf, first, nil
		default:
			first.known = false // a match came to rest on it meanwhile: there may be another
		}
	}
}

// walkOn finds the coldest leaf of a model that may go.
func (e *Engine) walkOn(t *index.Txn, w *leafWalk) error {
	e.walked.Add(1)
	w.known, w.more = true, false
	var repinned []kv.Key
	err := t.Leaves(w.model, &w.from, func(k kv.Key, rank uint64) bool {
		if rank>>catalog.RankBits == catalog.ClassPinned {
			return false
		}
		if e.Catalog.Class(k) == catalog.ClassPinned {
			repinned = append(repinned, k)
			return true
		}
		if e.Pins.Pinned(k) {
			return true
		}
		w.next, w.more = index.LeafPos{Rank: rank, Key: k}, true
		return false
	})
	if err != nil {
		return err
	}
	for _, k := range repinned { // so that the next walk stops before them
		if err := recovery.Rerank(t, e.Catalog, k); err != nil {
			return err
		}
	}
	if w.more {
		w.from = index.LeafPos{Rank: w.next.Rank} // the parents of leaves that go come as late, or are met by back
	}
	return nil
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
