package recovery

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// What a power cut took. The log is replayed as if all its records were there. Of those that the index names then, some are not
// whole: each is taken out again, and what it had replaced comes back, which is still there, because nothing is destroyed before
// what took its place is durable. What the log says to be removed, or replaced by something whole, is never asked for: whether it
// was destroyed or lost does not matter.
//
// Who writes next begins with a log head that lists what was taken out, so that it stays out whenever the same frames are replayed.

// replaced is an entry that a frame gave up for others.
type replaced struct {
	entry index.Entry
	back  bool // one of those is taken out
}

// arrival is a record that the replay has entered.
type arrival struct {
	id     ID
	lsn    uint64      // of the frame that did
	before []*replaced // what it stands in the place of
	synced bool        // it is older than the frames that were replayed
}

// badness says whether a record that is in the index must go.
type badness func(x index.Entry, p *arrival) (bool, error)

// instead notes that a frame put the record id at l, in the place of others.
func (r *run) instead(l loc.Loc, id ID, others ...*replaced) {
	if r.arrivals == nil {
		r.arrivals = map[loc.Loc]*arrival{}
	}
	p := r.arrivals[l]
	if p == nil {
		p = &arrival{id: id, lsn: r.lsn}
		r.arrivals[l] = p
	}
	for _, x := range others {
		if x != nil {
			p.before = append(p.before, x)
		}
	}
}

// dropListed takes out what the head of a later log file lists as dead: who wrote it had found that lost, or below what was.
func (r *run) dropListed(t *index.Txn, listed []loc.Loc) error {
	var ids []ID
	dead := make(map[loc.Loc]bool, len(listed))
	for _, l := range listed {
		dead[l] = true
		if p := r.arrivals[l]; p != nil {
			ids = append(ids, p.id)
		}
	}
	waiting, err := r.takeBack(t, ids, nil, func(x index.Entry, _ *arrival) (bool, error) {
		return dead[x.Loc], nil
	})
	r.list(waiting)
	return err
}

// dropLost takes out what is not whole, and then what has lost its prefix.
func (r *run) dropLost(t *index.Txn) error {
	named := map[loc.Loc]bool{}
	entries, err := r.entered(t)
	if err != nil {
		return err
	}
	whole, err := r.areWhole(entries)
	if err != nil {
		return err
	}
	lost := func(x index.Entry) (bool, error) {
		is, known := whole[x.Loc]
		if !known { // it stood in the place of one that is lost
			var err error
			if is, err = r.isWhole(&x); err != nil {
				return false, err
			}
			whole[x.Loc] = is
		}
		if !is && !named[x.Loc] {
			named[x.Loc] = true
			if r.covered(x.Loc) || r.harmed(x.Loc) { // nothing but damage took it
				r.Absent = append(r.Absent, x)
			} else {
				r.Lost = append(r.Lost, x)
			}
		}
		return !is, nil
	}
	waiting, err := r.takeBack(t, upwards(entries), nil, func(x index.Entry, p *arrival) (bool, error) {
		if wasDamaged(x, p) {
			return false, nil
		}
		return lost(x)
	})
	if err != nil {
		return err
	}
	if entries, err = r.entered(t); err != nil { // now it is known what hangs on those that were damaged
		return err
	}
	waiting, err = r.takeBack(t, upwards(entries), waiting, func(x index.Entry, p *arrival) (bool, error) {
		if is, err := lost(x); err != nil || !is {
			return false, err
		}
		kept, err := r.keepDamaged(t, x, p)
		return !kept, err
	})
	if err != nil {
		return err
	}
	r.list(waiting)
	if entries, err = r.entered(t); err != nil {
		return err
	}
	return r.dropCutOff(t, entries)
}

// entered are the entries that the replay made and that are there, each behind the block that it hangs on.
func (r *run) entered(t *index.Txn) (entries []index.Entry, err error) {
	for l, p := range r.arrivals {
		x, ok, err := t.Get(p.id.Key, p.id.Group)
		if err != nil {
			return nil, err
		}
		if ok && x.Loc == l {
			entries = append(entries, x)
		}
	}
	slices.SortFunc(entries, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Seq, b.Seq))
	})
	return entries, nil
}

// upwards are the names of entries, each before that of the block that it hangs on.
func upwards(entries []index.Entry) []ID {
	ids := make([]ID, 0, len(entries))
	for _, x := range slices.Backward(entries) {
		ids = append(ids, IDOf(&x))
	}
	return ids
}

// takeBack takes out those records for which bad says so, and enters what they had replaced, which may be bad as well. What was stored
// anew since stays, unless that is bad: meanwhile the older copies wait, and those that still do in the end are returned.
func (r *run) takeBack(t *index.Txn, ids []ID, waiting []*replaced, bad badness) ([]*replaced, error) {
	for len(ids) > 0 {
		for _, id := range ids {
			before, err := r.takeOut(t, id, bad)
			if err != nil {
				return nil, err
			}
			waiting = append(waiting, before...)
		}
		slices.SortFunc(waiting, func(a, b *replaced) int { return cmp.Compare(b.entry.Seq, a.entry.Seq) }) // of two copies the later one
		ids = nil
		var still []*replaced
		for _, x := range waiting {
			id := IDOf(&x.entry)
			_, taken, err := t.Get(id.Key, id.Group)
			if err != nil {
				return nil, err
			}
			if taken {
				still = append(still, x)
				continue
			}
			if err := r.putBack(t, id, x.entry); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		waiting = still
	}
	return waiting, nil
}

func (r *run) putBack(t *index.Txn, id ID, x index.Entry) error {
	at := x.Loc
	if r.arrivals[at] == nil {
		r.arrivals[at] = &arrival{id: id, synced: true}
	}
	r.rankAnew(id.Key)
	return t.Put(x)
}

// takeOut takes out one record, if it is bad, and returns what it had replaced.
func (r *run) takeOut(t *index.Txn, id ID, bad badness) (before []*replaced, err error) {
	x, ok, err := t.Get(id.Key, id.Group)
	p := r.arrivals[x.Loc]
	if err != nil || !ok || p == nil {
		return nil, err
	}
	if out, err := bad(x, p); err != nil || !out {
		return nil, err
	}
	for _, b := range p.before {
		if !b.back {
			b.back = true
			before = append(before, b)
		}
	}
	return before, r.drop(t, x)
}

// drop takes out a record for good.
func (r *run) drop(t *index.Txn, x index.Entry) error {
	r.list([]*replaced{{entry: x}})
	r.doom(x.Loc)
	return r.take(t, x)
}

// list has the next log head list records as dead.
func (r *run) list(dead []*replaced) {
	for _, x := range dead {
		r.Listed[x.entry.Loc] = true
	}
}

// wasDamaged reports whether a block that is not whole is damaged, and no loss of a power cut: the index had it at the last checkpoint, so
// that it was whole on the disk once.
func wasDamaged(x index.Entry, p *arrival) bool { return x.Group == 0 && p.synced }

// keepDamaged marks a damaged block, if something hangs on it: that stays until the block is stored again.
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

// dropCutOff takes out what hangs on a block that is not there, and keeps what is live from being destroyed. After a rebuild
// dropOrphans looks at every block.
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
	r.Catalog.Exhume(live)
	return nil
}
