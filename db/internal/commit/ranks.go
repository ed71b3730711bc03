package commit

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/index"
)

// Leaf is what a policy knows about a block: db.Leaf.
type Leaf struct {
	Clock     uint64
	Seq       uint64
	Hits      uint32
	Start     int
	End       int
	Bytes     int64
	Watermark uint64
}

// LeafOf is what a policy knows about a block that was put or used at that time of the clock.
func LeafOf(x index.Entry, clock, watermark uint64) Leaf {
	return Leaf{
		Clock: clock, Seq: x.Seq, Hits: x.Hits,
		Start: int(x.First), End: int(x.First) + int(x.Tokens), Bytes: x.Loc.Length, Watermark: watermark,
	}
}

// Ranks gives blocks their place in the order of eviction.
type Ranks struct {
	Policy    func(Leaf) uint64
	Clock     atomic.Uint64 // counts uses
	Watermark atomic.Uint64 // the highest rank that was evicted
}

// Order is the rank, without a priority class, of a block that was put or used at that time of the clock.
func (r *Ranks) Order(x index.Entry, clock uint64) uint64 {
	return r.Policy(LeafOf(x, clock, r.Watermark.Load()))
}

// Now is the rank of a block that is used now. Its priority class is in the highest byte.
func (r *Ranks) Now(c *catalog.Catalog, x index.Entry) uint64 {
	return c.Rank(x.Key, r.Order(x, r.Clock.Add(1)))
}
