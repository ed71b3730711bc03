package recovery

import (
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// dropOrphans removes from a new index every block whose prefix is not stored, and every group whose block is not. It marks where scopes begin.
func (r *run) dropOrphans() error {
	return r.Index.Update(func(t *index.Txn) error {
		var all []index.Entry
		if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			all = append(all, x)
			return true
		}); err != nil {
			return err
		}
		// Parents first: a block is decided when its parent is.
		slices.SortFunc(all, func(a, b index.Entry) int {
			if a.Group == 0 != (b.Group == 0) {
				return int(a.Group) - int(b.Group)
			}
			return int(int64(a.First) - int64(b.First))
		})
		for _, x := range all {
			need, hangs := Needs(&x)
			parent, ok, err := t.Get(need.Key, need.Group)
			if err != nil {
				return err
			}
			switch {
			case !hangs:
				ok = true
			case x.Group == 0 && ok:
				ok = parent.Model == x.Model && parent.First+uint32(parent.Tokens) == x.First
			}
			if !ok {
				r.Left = append(r.Left, x)
				if err := r.drop(t, x); err != nil {
					return err
				}
				continue
			}
			if x.Group == 0 && !x.Scope.IsShared() && (x.First == 0 || parent.Scope != x.Scope) {
				x.Flags |= index.FlagScopeRoot
				if err := t.Put(x); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// dropUnnamed has every scanned record destroyed that the new index does not name: older copies, and what was written but never acknowledged.
func (r *run) dropUnnamed() error {
	v := r.Index.View()
	defer v.Release()
	named := map[loc.Loc]bool{}
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		named[x.Loc] = true
		return true
	}); err != nil {
		return err
	}
	var unnamed []loc.Loc
	for l := range r.scan.records {
		if !named[l] {
			unnamed = append(unnamed, l)
		}
	}
	r.Catalog.BuryAt(unnamed...)
	return nil
}
