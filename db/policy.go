package db

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
)

// Leaf is what a policy knows about a block when it is put, used, or loses its last child.
type Leaf struct {
	Clock     uint64 // counts puts and uses; grows
	Seq       uint64 // counts puts; grows
	Hits      uint32 // matches that ended in this block
	Start     int    // tokens of the prompt before this block: what recomputing it depends on
	End       int    // tokens up to its end
	Bytes     int64  // what evicting it frees
	Watermark uint64 // the highest rank of a block that was evicted
}

// Policy orders eviction: of the blocks without children, the one with the lowest rank goes first. Ranks are below
// 1<<56; when a block loses its last child it keeps the higher of both ranks. Implementations are safe for
// concurrent use, and do not call the store, which holds locks meanwhile.
type Policy interface {
	Name() string
	Rank(Leaf) uint64
}

// tickBits are the fraction of a tick of the clock in a rank. All policies rank in the same unit, so that the one of an
// existing store can be changed.
const tickBits = 8

// LRU evicts what was used longest ago.
func LRU() Policy {
	return rankFunc{name: "lru", rank: func(l Leaf) uint64 { return l.Clock << tickBits }}
}

// FIFO evicts what was put longest ago.
func FIFO() Policy {
	return rankFunc{name: "fifo", rank: func(l Leaf) uint64 { return l.Seq << tickBits }}
}

// CostAware is LRU with lifetimes that differ. The time from a use until the eviction has come that far is a lifetime: a
// block gets a part of one more for each of its hits, because what came back once comes back again, and a part that
// grows with its depth, because attention makes a deep block dearer to compute. docs/eviction.md has the measurements.
func CostAware() Policy {
	const (
		hitWeight   = 128  // a hit adds half a lifetime
		hitLimit    = 4    // hits that count
		depthWeight = 192  // depth adds up to three quarters of a lifetime
		depthHalf   = 8192 // tokens before a block at which it adds half of that
	)
	return rankFunc{name: "cost-aware", rank: func(l Leaf) uint64 {
		now := max(l.Clock<<tickBits, l.Watermark)
		lifetime := (now - l.Watermark) >> tickBits
		hits, depth := uint64(min(l.Hits, hitLimit)), uint64(l.Start)
		return now + lifetime*(hits*hitWeight+depthWeight*depth/(depth+depthHalf))
	}}
}

// DepthCap keeps the beginning of every prompt and drops its far end first: blocks that end more than n tokens into their prompt are
// evicted before all others, and LRU decides among equals. It is no sliding window over the last tokens: only a prefix can be
// reused, so a window belongs into the conversation itself, whose prompt then begins anew. n is at least 1.
func DepthCap(n int) Policy {
	p := rankFunc{name: "depth-cap"}
	if n < 1 {
		p.bad = fmt.Errorf("DepthCap(%d): expected a number of tokens, at least 1", n)
	}
	p.rank = func(l Leaf) uint64 {
		if l.End > n {
			return l.Clock << tickBits
		}
		return l.Clock<<tickBits | 1<<(catalog.RankBits-1)
	}
	return p
}

type rankFunc struct {
	name string
	rank func(Leaf) uint64
	bad  error // what [Options.Validate] says of it
}

func (p rankFunc) validate() error    { return p.bad }
func (p rankFunc) Name() string       { return p.name }
func (p rankFunc) Rank(l Leaf) uint64 { return p.rank(l) & catalog.RankMask }
