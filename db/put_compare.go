package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/segments"
)

// compareAll compares the first n blocks of the chain, but for those that an earlier put has compared with the same tokens.
func (w *putter) compareAll(v *index.View, n int) error {
	model, blockTokens := w.m.ms.fp, w.m.ms.desc.BlockTokens
	was := w.e.compared.of(model, &w.p, blockTokens)
	at, fresh := make([]index.Loc, n), 0
	for i := range n {
		x, ok, err := v.Get(w.chain.Key(i), 0)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if i >= len(was) || was[i] != x.Loc {
			if sure, err := w.compare(i, x); err != nil {
				return err
			} else if !sure {
				continue
			}
			fresh++
		}
		at[i] = x.Loc
	}
	if fresh > n/8 { // so that a long prompt is not copied for each block that is added to it
		w.e.compared.keep(model, &w.p, blockTokens, at)
	}
	return nil
}

// compare fails if the block that is stored under the key of block i is that of another prompt: what is put below it would be
// found by whoever has that one. One that cannot be read, or is not where the index says, is nobody's: then it is not sure.
func (w *putter) compare(i int, x index.Entry) (sure bool, err error) {
	start, end := w.chain.Block(i)
	same := true
	err = w.e.set.Read(segLoc(x.Loc), func(r *segments.Record) error {
		if sure = r.Key() == x.Key && r.Group() == 0; sure {
			same = r.Parent() == w.chain.Parent(i) && r.Scope() == w.chain.Scope(i) && r.TokenCount() == end-start &&
				r.MatchTokens(&w.p, start) == end-start
		}
		return nil
	})
	if err != nil || same {
		return sure && err == nil, nil
	}
	w.e.count.collisions.Add(1)
	return false, &NotStoredError{Stored: start, Needed: end, Reason: Reason{Code: Collision, At: start, Err: errCollision}}
}
