package recovery

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Named is what the index, or the log, says of a record.
type Named struct {
	Key    kv.Key
	Tokens int
}

// ID names a record in the index.
type ID struct {
	Key   kv.Key
	Group uint8
}

// IDOf is the name of an entry.
func IDOf(x *index.Entry) ID { return ID{x.Key, x.Group} }

// Needs is the record that must be stored for x to be of use; ok is false for the first block of a prompt.
func Needs(x *index.Entry) (id ID, ok bool) {
	if x.Group > 0 {
		return ID{x.Key, 0}, true
	}
	return ID{x.Parent, 0}, x.First > 0
}

// IsRecord compares a record with what the index says of it. The error is a *damage.Error of a "record".
func IsRecord(r *segments.Record, x *index.Entry) error {
	if r.Key() == x.Key && r.Group() == x.Group && r.Parent() == x.Parent && r.Model() == x.Model && r.Scope() == x.Scope &&
		r.First() == x.First && r.TokenCount() == int(x.Tokens) {
		return nil
	}
	return damage.New(r.File(), x.Loc.Offset, "record", fmt.Sprintf("block %s group %d at token %d", x.Key, x.Group, x.First),
		fmt.Sprintf("block %s group %d at token %d", r.Key(), r.Group(), r.First()))
}

// Below returns block k and all blocks below it, each after its parent.
func Below(t *index.Txn, k kv.Key) ([]kv.Key, error) {
	order := []kv.Key{k}
	for i := 0; i < len(order); i++ {
		if err := t.Children(order[i], nil, func(child kv.Key, _ kv.ScopeID) bool {
			order = append(order, child)
			return true
		}); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// RemoveModel takes every entry of a model out of the index that of says yes to.
func RemoveModel(t *index.Txn, fp kv.Fingerprint, of func(index.Entry) bool) error {
	var all []ID
	if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if x.Model == fp && of(x) {
			all = append(all, IDOf(&x))
		}
		return true
	}); err != nil {
		return err
	}
	// Leaves last-to-first would cost a sort: the index keeps its rows consistent in any order.
	for _, id := range all {
		if err := t.Remove(id.Key, id.Group); err != nil {
			return err
		}
	}
	return nil
}

// Rerank gives block k the class that its refs say, in the order that it has.
func Rerank(t *index.Txn, c *catalog.Catalog, k kv.Key) error {
	entry, ok, err := t.Get(k, 0)
	if err != nil || !ok {
		return err
	}
	rank := c.Rank(k, entry.Rank)
	if rank == entry.Rank {
		return nil
	}
	return t.Use(k, rank, entry.Hits, 0)
}
