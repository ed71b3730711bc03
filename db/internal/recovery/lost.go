package recovery

import (
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// What a power cut took. The log is replayed as if all its records were there. Of those that the index names in the end, some are not whole.
// Each is taken out again, and what it had replaced comes back (undo.go). Records that the log removes, or replaces by something whole, are
// never read: it does not matter whether they were destroyed or lost.

// losses is what is known of the records that the replay entered.
type losses struct {
	whole map[loc.Loc]bool
	told  map[loc.Loc]bool // the result names the record
}

// dropLost takes out what is not whole, and then what has lost its prefix.
func (r *run) dropLost(t *index.Txn) error {
	entries, err := r.arrivals.entered(t)
	if err != nil {
		return err
	}
	whole, err := r.areWhole(entries)
	if err != nil {
		return err
	}
	known := losses{whole: whole, told: map[loc.Loc]bool{}}
	waiting, err := r.takeBack(t, upwards(entries), nil, func(x index.Entry, p *arrival) (bool, error) {
		if wasDamaged(x, p) {
			return false, nil
		}
		return r.isLost(x, known)
	})
	if err != nil {
		return err
	}
	// Now it is known what hangs on the blocks that were damaged.
	if entries, err = r.arrivals.entered(t); err != nil {
		return err
	}
	waiting, err = r.takeBack(t, upwards(entries), waiting, func(x index.Entry, p *arrival) (bool, error) {
		if lost, err := r.isLost(x, known); err != nil || !lost {
			return false, err
		}
		kept, err := r.keepDamaged(t, x, p)
		return !kept, err
	})
	if err != nil {
		return err
	}
	r.list(waiting)
	if entries, err = r.arrivals.entered(t); err != nil {
		return err
	}
	return r.dropCutOff(t, entries)
}

// isLost reports whether a record is not whole. The result names each such record once: as absent where damage took it, else as lost.
func (r *run) isLost(x index.Entry, known losses) (bool, error) {
	whole, read := known.whole[x.Loc]
	if !read { // it stood in the place of one that is lost
		var err error
		if whole, err = r.isWhole(&x); err != nil {
			return false, err
		}
		known.whole[x.Loc] = whole
	}
	if whole || known.told[x.Loc] {
		return !whole, nil
	}
	known.told[x.Loc] = true
	if r.arrivals.covered(x.Loc, r.Log.Barrier) || r.disk.harmed(x.Loc) { // nothing but damage took it
		r.Absent = append(r.Absent, x)
	} else {
		r.Lost = append(r.Lost, x)
	}
	return true, nil
}

// wasDamaged reports whether a block that is not whole is damaged, and not lost in a power cut. The index had it at the last checkpoint, so
// it was whole on the disk once.
func wasDamaged(x index.Entry, p *arrival) bool { return x.Group == 0 && p.synced }

// keepDamaged marks a damaged block on which something hangs. Both stay until the block is stored again.
func (r *run) keepDamaged(t *index.Txn, x index.Entry, p *arrival) (bool, error) {
	if !wasDamaged(x, p) {
		return false, nil
	}
	if bears, err := r.bears(t, x.Key); err != nil || !bears {
		return false, err
	}
	r.Catalog.Apply(oplog.Flag{Key: x.Key}, catalog.Place{})
	return true, t.SetFlags(x.Key, 0, x.Flags|index.FlagDamaged)
}

// bears reports whether something hangs on block k.
func (r *run) bears(t *index.Txn, k kv.Key) (bool, error) {
	bears, err := t.HasChildren(k)
	if err == nil && !bears {
		err = t.Groups(k, func(g index.Entry) bool {
			bears = bears || g.Group > 0
			return !bears
		})
	}
	return bears, err
}

// dropCutOff takes out what hangs on a block that is not there, and keeps what lives from being destroyed. After a rebuild dropOrphans does that
// for every block.
func (r *run) dropCutOff(t *index.Txn, entries []index.Entry) error {
	live := map[loc.Loc]bool{}
	for _, x := range entries {
		need, hangs := Needs(&x)
		_, ok, err := t.Get(need.Key, need.Group)
		if err != nil {
			return err
		}
		if hangs && !ok && !r.Rebuilt {
			r.Left = append(r.Left, x)
			if err := r.drop(t, x); err != nil {
				return err
			}
			continue
		}
		live[x.Loc] = true
	}
	r.Catalog.Restore(live)
	return nil
}
