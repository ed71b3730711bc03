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
	Ageing  uint64 // the rank of the leaf evicted last; 0 before the first eviction
}

// A Policy ranks leaves: the lowest rank goes first. A rank is computed when an [Event] happens and kept until the next
// one, so that a database can hold the leaves in an ordered index and never has to rank them all anew.
type Policy struct {
	Name string
	Rank func(Leaf) uint64
}
