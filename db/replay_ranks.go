package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// The class of a block's rank follows from the refs, and is in no frame: what the log says of refs since the index was written
// must change it anew. A pin that stayed there would keep a block from being evicted for ever.

// rankAnew notes a block whose refs changed, or which has lost a child from whom it has its rank.
func (r *recovery) rankAnew(k kv.Key) {
	if r.unranked == nil {
		r.unranked = map[kv.Key]struct{}{}
	}
	r.unranked[k] = struct{}{}
}

// rankRef is rankAnew of the block that a name is on.
func (r *recovery) rankRef(name string) {
	if ref, ok := r.e.catalog.Ref(name); ok {
		r.rankAnew(ref.Block)
	}
}

// take removes a record from the index.
func (r *recovery) take(t *index.Txn, x index.Entry) error {
	if x.Group == 0 {
		r.rankAnew(x.Parent)
	}
	return t.Remove(x.Key, x.Group)
}

// classes gives every block that was noted the class that its refs say; in a rebuild those that have refs, too.
func (r *recovery) classes(t *index.Txn) error {
	if r.rebuild {
		for _, k := range r.e.catalog.Named() {
			r.rankAnew(k)
		}
	}
	for k := range r.unranked {
		if err := r.e.rerank(t, k); err != nil {
			return err
		}
	}
	return nil
}
