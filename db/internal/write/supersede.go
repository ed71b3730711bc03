package write

import (
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// supersede removes the partial blocks that a new block begins with: their rows are in it. Recovery pairs the two again, from the frame (package recovery,
// run.put); what stays beside a longer block is found by prefix.StoredPrefixes.
func (w *Put) supersede(t *index.Txn, block index.Entry, op *oplog.Put) error {
	i := w.prompt.BlockAt(int(block.First), w.model.Desc.BlockTokens)
	partial, err := prefix.StoredPrefixes(t, w.store.Search.Hasher, &w.prompt, w.Chain, i, int(block.First)+int(block.Tokens)-1)
	if err != nil {
		return err
	}
	for _, f := range partial {
		k := f.Key
		short, ok, err := t.Get(k, 0)
		if err != nil {
			return err
		}
		if !ok || short.Parent != block.Parent || short.Scope != block.Scope || w.needed(k) {
			continue
		}
		records, err := w.takenOver(t, k, block.Key, op)
		if err != nil {
			return err
		}
		if len(records) == 0 || !w.leave(k) {
			continue
		}
		parent := short.Parent
		if short.First == 0 { // which hangs from no block
			parent = kv.Key{}
		}
		w.below = append(w.below, parent)
		unseen := !w.store.Pins.Seen(k) // else by the match that this put extends
		for _, r := range records {
			op.Dead = append(op.Dead, oplog.Dead{Key: k, Group: r.Group, Loc: r.Loc, Unseen: unseen})
			if err := t.Remove(k, r.Group); err != nil {
				return err
			}
		}
	}
	return nil
}

// takenOver returns the records of a partial block, if it has no children and block has all their rows in records of this put; else none: a
// power cut may take what was put before, and leave this.
func (w *Put) takenOver(t *index.Txn, short, block kv.Key, op *oplog.Put) ([]index.Entry, error) {
	if kids, err := t.HasChildren(short); err != nil || kids {
		return nil, err
	}
	var records []index.Entry
	for g, group := range w.model.Desc.Groups {
		r, ok, err := t.Get(short, uint8(g))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		long, ok, err := t.Get(block, uint8(g))
		if err != nil {
			return nil, err
		}
		if !ok || group.Kind == kv.StateAt || !covers(long, r.RowFirst, r.RowFirst+r.RowCount) {
			return nil, nil
		}
		if !slices.ContainsFunc(op.Records, func(rec index.Entry) bool { return rec.Key == block && rec.Group == uint8(g) }) {
			return nil, nil
		}
		records = append(records, r)
	}
	return records, nil
}

// needed reports whether a ref, or a lease other than this put's own, rests on block k.
func (w *Put) needed(k kv.Key) bool {
	return w.store.Ledger.Catalog.IsNamed(k) || w.store.Pins.Pinned(k, w.own()...)
}

// leave marks a partial block, so that no match comes to rest on it any more, unless one rests on it that is not this put's own.
func (w *Put) leave(k kv.Key) bool {
	if !w.store.Pins.Leave(k, w.own()...) {
		return false
	}
	w.left = append(w.left, k)
	return true
}
