package recovery

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// The class of a block's rank follows from the refs, and is in no frame: what the log says of refs since the index was written
// must change it anew. A pin that stayed there would keep a block from being evicted for ever.

// rankAnew notes a block whose refs changed, or which has lost a child from whom it has its rank.
func (r *run) rankAnew(k kv.Key) {
	if r.unranked == nil {
		r.unranked = map[kv.Key]struct{}{}
	}
	r.unranked[k] = struct{}{}
}

// rankRef is rankAnew of the block that a name is on.
func (r *run) rankRef(name string) {
	if ref, ok := r.Catalog.Ref(name); ok {
		r.rankAnew(ref.Block)
	}
}

// take removes a record from the index.
func (r *run) take(t *index.Txn, x index.Entry) error {
	if x.Group == 0 {
		r.rankAnew(x.Parent)
	}
	return t.Remove(x.Key, x.Group)
}

// classes gives every block that was noted the class that its refs say; in a rebuild those that have refs, too.
func (r *run) classes(t *index.Txn) error {
	if r.Rebuilt {
		for _, k := range r.Catalog.Named() {
			r.rankAnew(k)
		}
	}
	for k := range r.unranked {
		if err := Rerank(t, r.Catalog, k); err != nil {
			return err
		}
	}
	return nil
}

// rank is the rank of a block that is put now.
func (r *run) rank(x index.Entry) uint64 {
	r.Clock++
	return r.Catalog.Rank(x.Key, r.Rank(x, r.Clock))
}
