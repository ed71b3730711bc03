package recovery

import (
	"cmp"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// Where frames of the log are damaged, the index is built anew, and nobody knows what they said: they may have put, moved or removed what
// the frames behind them are about. So what the segments hold counts as stored, unless a frame that can be read removes it.

// removeBelow takes out, where the log is damaged, what was stored under the keys that op removes, wherever it lies by now, with all that
// hangs below it. What was stored after the removal has a later sequence number, and stays: a frame that is lost may have put it.
func (r *run) removeBelow(t *index.Txn, op oplog.Remove) error {
	if !r.Log.Damaged() {
		return nil
	}
	for _, d := range op.Dead {
		keys := []kv.Key{d.Key}
		if d.Group == 0 {
			var err error
			if keys, err = Below(t, d.Key); err != nil {
				return err
			}
		}
		r.partial = slices.DeleteFunc(r.partial, func(x index.Entry) bool {
			return x.Seq <= op.Seq && (d.Group == 0 || x.Group == d.Group) && slices.Contains(keys, x.Key)
		})
		for _, k := range slices.Backward(keys) {
			var gone []index.Entry
			if err := t.Groups(k, func(x index.Entry) bool {
				if x.Seq <= op.Seq && (d.Group == 0 || x.Group == d.Group) {
					gone = append(gone, x)
				}
				return true
			}); err != nil {
				return err
			}
			for _, x := range slices.Backward(gone) {
				if err := r.take(t, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// enterPartial enters what the scan found of records that no frame names and that are not whole. A frame that is lost may have named them, or
// what took the frame took their bytes, too. So they stand in the place of nothing that is whole, and are kept only for what hangs on them and had
// been durable: then they had been, too, and are damaged.
func (r *run) enterPartial(t *index.Txn) error {
	slices.SortFunc(r.partial, func(a, b index.Entry) int { // the last block first, of two copies the later one
		return cmp.Or(cmp.Compare(b.First, a.First), cmp.Compare(a.Group, b.Group), cmp.Compare(b.Seq, a.Seq))
	})
	kept := map[loc.Loc]bool{}
	for _, x := range r.partial {
		if _, ok, err := t.Get(x.Key, x.Group); err != nil {
			return err
		} else if ok || r.Catalog.IsDead(x.Loc) {
			continue
		}
		keep := false
		if x.Group == 0 {
			var err error
			if keep, err = r.bore(t, x.Key, kept); err != nil {
				return err
			}
		}
		if !keep {
			r.Left = append(r.Left, x)
			continue // dropUnnamed has it destroyed
		}
		kept[x.Loc] = true
		if err := t.Put(x); err != nil {
			return err
		}
	}
	return nil
}

// bore reports whether something hangs on block k that had been durable, or is kept because it had been.
func (r *run) bore(t *index.Txn, k kv.Key, kept map[loc.Loc]bool) (bore bool, err error) {
	look := func(x index.Entry) bool {
		bore = bore || kept[x.Loc] || !r.Log.Young(x.Loc) || r.covered(x.Loc)
		return !bore
	}
	if err := t.Groups(k, look); err != nil || bore {
		return bore, err
	}
	var failed error
	err = t.Children(k, nil, func(child kv.Key, _ kv.ScopeID) bool {
		x, ok, err := t.Get(child, 0)
		failed = err
		return err == nil && (!ok || look(x))
	})
	return bore, errors.Join(err, failed)
}

// hasYounger reports whether the scan entered a copy of a record that no frame names, and that came after the one that a frame names: one
// that is lost may have put it there, and then the older one may be destroyed.
func (r *run) hasYounger(t *index.Txn, x index.Entry) (bool, error) {
	if !r.Log.Damaged() || !r.Rebuilt {
		return false, nil
	}
	cur, ok, err := t.Get(x.Key, x.Group)
	_, named := r.named.Put[cur.Loc]
	if err != nil || !ok || named || cur.Seq <= x.Seq {
		return false, err
	}
	return r.intact(&cur)
}
