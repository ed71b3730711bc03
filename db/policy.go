package db

// Leaf is what a policy knows about a block when it is put, used, or loses its last child.
type Leaf struct {
	Clock uint64 // counts puts and uses; grows
	Birth uint64 // counts puts; grows
	Hits  uint32 // matches that ended in this block
	End   int    // tokens from the start of the prompt to the end of this block: what recomputing it depends on
	Bytes int64  // what evicting it frees
	Floor uint64 // the rank of the block that was evicted last
}

// Policy orders eviction: of the blocks without children, the one with the lowest rank goes first. Ranks are below
// 1<<56; when a block loses its last child it keeps the higher of both ranks. Implementations are safe for
// concurrent use.
type Policy interface {
	Name() string
	Rank(Leaf) uint64
}

// rankBits is the width of a policy's rank; the byte above it holds the priority class.
const rankBits = 56

const rankMask = 1<<rankBits - 1

// LRU evicts what was used longest ago.
func LRU() Policy { return rankFunc{"lru", func(l Leaf) uint64 { return l.Clock }} }

// FIFO evicts what was put longest ago.
func FIFO() Policy { return rankFunc{"fifo", func(l Leaf) uint64 { return l.Birth }} }

// RecentTokens is LRU with a cap on depth: blocks that end more than n tokens into their prompt are evicted before
// all others. Since only exact prefixes can be reused, it is the far end of a long session that goes, never its start.
func RecentTokens(n int) Policy {
	return rankFunc{"recent-tokens", func(l Leaf) uint64 {
		if l.End > n {
			return l.Clock
		}
		return l.Clock | 1<<(rankBits-1)
	}}
}

type rankFunc struct {
	name string
	rank func(Leaf) uint64
}

func (p rankFunc) Name() string       { return p.name }
func (p rankFunc) Rank(l Leaf) uint64 { return p.rank(l) & rankMask }
