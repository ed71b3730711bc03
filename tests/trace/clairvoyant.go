package trace

import "math"

// A future knows which requests need a block.
type future struct {
	uses [][]int32 // by block id: the requests it occurs in that are still to come, counted from 1
}

func newFuture(requests []Request) *future {
	f := &future{uses: make([][]int32, Distinct(requests))}
	for i, r := range requests {
		for _, id := range r.Blocks {
			f.uses[id] = append(f.uses[id], int32(i+1))
		}
	}
	return f
}

// rank is lower the later the block is needed again after request now. It holds until that request: a block that is
// needed earlier is not a leaf, and is ranked anew when it becomes one. 0: never again.
func (f *future) rank(id uint32, now int) uint64 {
	uses := f.uses[id]
	for len(uses) > 0 && uses[0] <= int32(now) {
		uses = uses[1:]
	}
	f.uses[id] = uses
	if len(uses) == 0 {
		return 0
	}
	return math.MaxUint64 - uint64(uses[0])
}
