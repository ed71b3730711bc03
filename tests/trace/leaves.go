package trace

import "container/heap"

// A block is what the simulated store keeps about one block; stored is false when it was evicted.
type block struct {
	Leaf
	id       uint32
	key      uint64 // a hash of id, as the database's key is one
	parent   int64  // -1: the first block of a prompt
	children int
	stored   bool
	shielded bool // the deepest block so far of the request in progress
	place    int  // in the order of leaves; -1: not a leaf, or shielded
}

// A leafOrder holds the leaves that may be evicted, lowest rank first. Equal ranks go in an order that means nothing,
// as in the database, where the key, a hash, breaks ties.
type leafOrder []*block

func (o leafOrder) Len() int { return len(o) }

func (o leafOrder) Less(i, j int) bool {
	if o[i].Rank != o[j].Rank {
		return o[i].Rank < o[j].Rank
	}
	return o[i].key < o[j].key
}

func (o leafOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place, o[j].place = i, j
}

// Push and Pop are container/heap's; use add and remove.
func (o *leafOrder) Push(x any) {
	b := x.(*block)
	b.place = len(*o)
	*o = append(*o, b)
}

func (o *leafOrder) Pop() any {
	last := len(*o) - 1
	b := (*o)[last]
	*o = (*o)[:last]
	b.place = -1
	return b
}

func (o *leafOrder) add(b *block) {
	if b.place < 0 {
		heap.Push(o, b)
	}
}

func (o *leafOrder) remove(b *block) {
	if b.place >= 0 {
		heap.Remove(o, b.place)
	}
}

// moved restores the order after b's rank changed, if b is in it.
func (o *leafOrder) moved(b *block) {
	if b.place >= 0 {
		heap.Fix(o, b.place)
	}
}

// lowest returns the leaf that goes next, or nil.
func (o leafOrder) lowest() *block {
	if len(o) == 0 {
		return nil
	}
	return o[0]
}
