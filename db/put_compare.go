package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/segments"
)

// compare fails if the block that is stored under the key of block i is that of another prompt: what is put below it would be
// found by whoever has that one. One that cannot be read, or is not where the index says, is nobody's.
func (w *putter) compare(i int, x index.Entry) error {
	start, end := w.chain.Block(i)
	same := true
	err := w.e.set.Read(segLoc(x.Loc), func(r *segments.Record) error {
		if r.Key() == x.Key && r.Group() == 0 {
			same = r.Parent() == w.chain.Parent(i) && r.Scope() == w.chain.Scope(i) && r.TokenCount() == end-start &&
				r.MatchTokens(&w.p, start) == end-start
		}
		return nil
	})
	if err != nil || same {
		return nil
	}
	w.e.count.collisions.Add(1)
	return &NotStoredError{Stored: start, Needed: end, Reason: Reason{Code: Collision, At: start, Err: errCollision}}
}
