package evict

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/kv"
)

// Evictor evicts. It is safe for concurrent use; its exported fields do not change.
type Evictor struct {
	Ledger      *commit.Ledger
	Checkpoints *checkpoint.Checkpoints
	Filter      *filter.Filter
	Pins        *lease.Pins
	Count       *tally.Counters

	Walked atomic.Int64 // how often evictions have gone through the leaves of a model
}

// batch bounds the leaves that one log frame evicts.
const batch = 256

// Until removes the coldest leaves until nothing is left of the goal or nothing may go. It returns the number of blocks. Their bytes come back with
// the next reclaim.
//
// The goal is asked for anew for each frame, while nobody else evicts or destroys: so whoever evicts at the same time, puts and the background, never
// evict for the same room twice. The caller holds no lock, and goal must take none before lock.Commit.
func (v *Evictor) Until(ctx context.Context, goal func() budget.Lack) (blocks int, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return blocks, err
		}
		n, err := v.Once(goal)
		blocks += n
		if err != nil || n == 0 {
			return blocks, err
		}
	}
}

// Once is one frame of Until.
func (v *Evictor) Once(goal func() budget.Lack) (blocks int, err error) {
	v.Checkpoints.Lock()
	defer v.Checkpoints.Unlock()
	want := goal()
	if want.Bytes <= 0 && want.Blocks <= 0 {
		return 0, nil
	}
	return v.Some(want)
}

// Some evicts some leaves, in one frame. The caller has the lock of the checkpoints.
func (v *Evictor) Some(goal budget.Lack) (n int, err error) {
	var out []kv.Key
	defer func() { v.Pins.End(out) }()
	c, err := v.Ledger.Begin()
	if err != nil {
		return 0, err
	}
	defer c.End()
	var op oplog.Remove
	var freed int64
	var used []uint32
	for walks := v.walks(c); n < batch && (freed < goal.Bytes || int64(n) < goal.Blocks); n++ {
		leaf, walk, err := v.coldest(c, walks)
		if err != nil {
			return 0, err
		}
		if walk == nil {
			break
		}
		out = append(out, leaf.Key)
		dead, bytes, err := c.RemoveBlock(leaf)
		if err == nil {
			err = walk.back(c, leaf)
		}
		if err != nil {
			return 0, err
		}
		op.Dead = append(op.Dead, dead...)
		freed += bytes
		used = append(used, leaf.Used)
		v.raise(leaf.Rank & catalog.RankMask)
	}
	if n == 0 { // leaves that were pinned since have their rank, at least
		_, err := c.Commit(nil)
		return 0, err
	}
	op.Seq = v.Ledger.Seq.Load()
	for i := range op.Dead {
		op.Dead[i].Unseen = true // no match rests on them
	}
	if _, err := c.Commit(op); err != nil {
		return 0, err
	}
	v.count(used)
	return n, nil
}

// raise notes the highest rank that was evicted.
func (v *Evictor) raise(rank uint64) {
	mark := &v.Ledger.Ranks.Watermark
	mark.Store(max(mark.Load(), rank))
}

// count counts evicted blocks, by the minutes in which they were last used.
func (v *Evictor) count(used []uint32) {
	v.Filter.Removed(int64(len(used)))
	v.Count.Evicted.Add(int64(len(used)))
	for now := commit.Minute(); len(used) > 0; used = used[1:] {
		if used[0] != 0 {
			age := min(time.Duration(now)-time.Duration(used[0]), math.MaxInt64/time.Minute)
			v.Count.EvictedAge.Add(age * time.Minute)
		}
	}
}
