package trace

// An Event is why a block is ranked.
type Event uint8

const (
	Inserted Event = iota // it was just stored
	Touched               // it was the deepest block of a prefix found
	Bared                 // its last child was evicted: it is a leaf again
)

// A Leaf is all that a policy may look at.
type Leaf struct {
	Event   Event
	Clock   uint64 // counts touches and insertions in the whole store
	Birth   uint64 // the clock when the block was stored
	Touched uint64 // the clock when it, or an evicted block below it, was last touched or stored
	Hits    uint32 // how often it was touched since it was stored
	Depth   uint32 // tokens before the block
	Tokens  uint32 // in the block
	Rank    uint64 // the rank it has; 0 when it was just stored
	Ageing  uint64 // the highest rank evicted so far; 0 before the first eviction
}

// A Policy ranks leaves: the lowest rank goes first. A rank is computed when an [Event] happens and kept until the next
// one, so that a database can hold the leaves in an ordered index and never has to rank them all anew.
type Policy struct {
	Name string
	Rank func(Leaf) uint64
}

// FIFO evicts what was stored first.
var FIFO = Policy{"FIFO", func(l Leaf) uint64 { return l.Birth }}

// LRU evicts what was touched longest ago.
var LRU = Policy{"LRU", func(l Leaf) uint64 { return l.Touched }}

// countShift leaves the low bits of a rank to the recency, which breaks ties between equal counts.
const countShift = 40

// LFU evicts what was touched least often, and of those the one touched longest ago.
var LFU = Policy{"LFU", func(l Leaf) uint64 { return uint64(l.Hits)<<countShift | l.Touched }}

// SegmentedLRU evicts what was touched longest ago among the blocks that were never hit, and only when there are none
// among the others. (The protected segment has no limit.)
var SegmentedLRU = Policy{"segmented LRU", func(l Leaf) uint64 { return uint64(min(l.Hits, 1))<<62 | l.Touched }}

// LFUDA is LFU with dynamic ageing: GDSF with equal costs and sizes. A count starts from that of the block evicted last,
// so old counts lose their worth. A parent that becomes a leaf keeps the rank it has.
var LFUDA = Policy{"LFU-DA (GDSF)", func(l Leaf) uint64 {
	if l.Event == Bared {
		return l.Rank
	}
	return (l.Ageing>>countShift+uint64(l.Hits)+1)<<countShift | l.Touched
}}
