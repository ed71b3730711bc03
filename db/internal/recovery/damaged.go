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

// Where frames of the log are damaged, the index is built anew. Nobody knows what these frames said: they may have put, moved or removed the
// records of later frames. So what the segments hold counts as stored, unless a frame that can be read removes it.

// removeBelow takes out the blocks of a removal where the log is damaged, wherever their records lie by now, with all blocks below them. A record
// that was stored after the removal has a later sequence number, and stays: a lost frame may have put it.
func (r *run) removeBelow(t *index.Txn, dead []oplog.Dead, seq uint64) error {
	if !r.Log.Damaged() {
		return nil
	}
	for _, d := range dead {
		keys := []kv.Key{d.Key}
		if d.Group == 0 {
			var err error
			if keys, err = Below(t, d.Key); err != nil {
				return err
			}
		}
		r.scan.partial = slices.DeleteFunc(r.scan.partial, func(x index.Entry) bool {
			return x.Seq <= seq && (d.Group == 0 || x.Group == d.Group) && slices.Contains(keys, x.Key)
		})
		for _, k := range slices.Backward(keys) {
			var gone []index.Entry
			if err := t.Groups(k, func(x index.Entry) bool {
				if x.Seq <= seq && (d.Group == 0 || x.Group == d.Group) {
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

// enterPartial enters records that the scan found, that no frame names and that are not whole. Perhaps a lost frame named them. Perhaps what took
// the frame took their bytes, too. So they replace nothing that is whole. They are kept only if something hangs on them that was durable: then they
// were durable, too, and are damaged.
func (r *run) enterPartial(t *index.Txn) error {
	slices.SortFunc(r.scan.partial, func(a, b index.Entry) int { // the last block first, of two copies the later one
		return cmp.Or(cmp.Compare(b.First, a.First), cmp.Compare(a.Group, b.Group), cmp.Compare(b.Seq, a.Seq))
	})
	kept := map[loc.Loc]bool{}
	for _, x := range r.scan.partial {
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

// bore reports whether something hangs on block k that was durable, or is kept because it was.
func (r *run) bore(t *index.Txn, k kv.Key, kept map[loc.Loc]bool) (bore bool, err error) {
	look := func(x index.Entry) bool {
		bore = bore || kept[x.Loc] || !r.Log.Young(x.Loc) || r.arrivals.covered(x.Loc, r.Log.Barrier)
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

// hasYounger reports whether the scan entered a later copy of a record, which no frame names. A lost frame may have put that copy there, and then
// the older one may be destroyed.
func (r *run) hasYounger(t *index.Txn, x index.Entry) (bool, error) {
	if !r.Log.Damaged() || !r.Rebuilt {
		return false, nil
	}
	cur, ok, err := t.Get(x.Key, x.Group)
	_, named := r.scan.named.Put[cur.Loc]
	if err != nil || !ok || named || cur.Seq <= x.Seq {
		return false, err
	}
	return r.disk.intact(&cur)
}
