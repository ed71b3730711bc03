package evict

import (
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// FindWatermark sets the eviction watermark, the highest rank that was evicted, to that of the coldest leaf, as if the one before it had just been evicted.
func (v *Evictor) FindWatermark() error {
	now := v.Ledger.View()
	defer now.Release()
	coldest := uint64(catalog.RankMask)
	var err error
	now.Models(func(fp kv.Fingerprint, _ index.Counts) bool { // those that have blocks
		err = now.Leaves(fp, nil, func(_ kv.Key, rank uint64) bool {
			coldest = min(coldest, rank&catalog.RankMask)
			return false
		})
		return err == nil
	})
	if err != nil {
		return err
	}
	if coldest != catalog.RankMask {
		v.Ledger.Ranks.Watermark.Store(coldest)
	}
	return nil
}

// leafWalk is how far a frame's evictions have come in the leaves of a model: what went before is not passed again. A leaf that was in
// use when it was passed is for a later frame.
type leafWalk struct {
	model kv.Fingerprint
	old   bool // a later version of the model is registered
	from  index.LeafPos
	known bool          // next and more are what they were found to be: no leaf of the model went since, and next did not come into use
	more  bool          // there is a next
	next  index.LeafPos // the model's coldest leaf that may go
}

// walks begins those of all registered models that have blocks. They hold for one frame: the commit lock keeps models and refs as they
// are, and what changes among the leaves of a model is what the frame removes there.
func (v *Evictor) walks(c *commit.Change) (walks []*leafWalk) {
	latest := v.Ledger.Catalog.Latest()
	c.Index.Models(func(fp kv.Fingerprint, _ index.Counts) bool {
		if is, registered := latest[fp]; registered {
			walks = append(walks, &leafWalk{model: fp, old: !is})
		}
		return true
	})
	return walks
}

// back has the walk look anew after a leaf of its model went, and meet its parent, if that is a colder leaf now.
func (w *leafWalk) back(c *commit.Change, leaf index.Entry) error {
	w.known = false
	parent, ok, err := c.Index.Get(leaf.Parent, 0)
	if err != nil || !ok || parent.Rank >= w.from.Rank {
		return err
	}
	others, err := c.Index.HasChildren(parent.Key)
	if err == nil && !others {
		w.from = index.LeafPos{Rank: parent.Rank}
	}
	return err
}

// before reports whether the next leaf of w goes before that of x: superseded versions of a model first, then by rank.
func (w *leafWalk) before(x *leafWalk) bool {
	if w.old != x.old {
		return w.old
	}
	return w.next.Rank < x.next.Rank
}

// coldest picks the leaf to go next and marks it as being evicted. It returns the walk that has come to it, nil if no leaf may go.
func (v *Evictor) coldest(c *commit.Change, walks []*leafWalk) (leaf index.Entry, walk *leafWalk, err error) {
	for {
		var first *leafWalk
		for _, w := range walks {
			if !w.known {
				if err := v.walkOn(c, w); err != nil {
					return leaf, nil, err
				}
			}
			if w.more && (first == nil || w.before(first)) {
				first = w
			}
		}
		if first == nil {
			return leaf, nil, nil
		}
		leaf, stored, err := c.Index.Get(first.next.Key, 0)
		switch {
		case err != nil:
			return leaf, nil, err
		case !stored:
			first.more = false
		case v.Pins.Leave(leaf.Key):
			return leaf, first, nil
		default:
			first.known = false // a match came to rest on it meanwhile: there may be another
		}
	}
}

// walkOn finds the coldest leaf of a model that may go.
func (v *Evictor) walkOn(c *commit.Change, w *leafWalk) error {
	v.Walked.Add(1)
	w.known, w.more = true, false
	var repinned []kv.Key
	err := c.Index.Leaves(w.model, &w.from, func(k kv.Key, rank uint64) bool {
		if rank>>catalog.RankBits == catalog.ClassPinned {
			return false
		}
		if v.Ledger.Catalog.Class(k) == catalog.ClassPinned {
			repinned = append(repinned, k)
			return true
		}
		if v.Pins.Pinned(k) {
			return true
		}
		w.next, w.more = index.LeafPos{Rank: rank, Key: k}, true
		return false
	})
	if err != nil {
		return err
	}
	for _, k := range repinned { // so that the next walk stops before them
		if err := c.Rerank(k); err != nil {
			return err
		}
	}
	if w.more {
		w.from = index.LeafPos{Rank: w.next.Rank} // the parents of leaves that go come as late, or are met by back
	}
	return nil
}
