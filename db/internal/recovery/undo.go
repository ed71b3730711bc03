package recovery

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
)

// How a replay is undone in part. A record that must go is taken out of the index, and what it had replaced comes back. That is still there,
// because nothing is destroyed before what took its place is durable.
//
// The next writer begins with a log head that lists what was taken out. So it stays out whenever the same frames are replayed.

// mustGo says whether a record that is in the index must be taken out.
type mustGo func(x index.Entry, p *arrival) (bool, error)

// takeBack takes out those records that must go, and enters what they had replaced, which may have to go as well. What was stored anew
// since stays, unless it must go: meanwhile the older copies wait. takeBack returns those that still wait in the end.
func (r *run) takeBack(t *index.Txn, ids []ID, waiting []*replaced, must mustGo) ([]*replaced, error) {
	for len(ids) > 0 {
		for _, id := range ids {
			before, err := r.takeOut(t, id, must)
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
			if err := r.putBack(t, x.entry); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		waiting = still
	}
	return waiting, nil
}

// takeOut takes out one record, if it must go, and returns what it had replaced.
func (r *run) takeOut(t *index.Txn, id ID, must mustGo) (before []*replaced, err error) {
	x, ok, err := t.Get(id.Key, id.Group)
	p := r.arrivals.at[x.Loc]
	if err != nil || !ok || p == nil {
		return nil, err
	}
	if out, err := must(x, p); err != nil || !out {
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

// putBack enters again what was replaced.
func (r *run) putBack(t *index.Txn, x index.Entry) error {
	r.arrivals.back(x)
	r.ranks.block(x.Key)
	return t.Put(x)
}

// dropListed takes out what the head of a later log file lists as dead: its writer found that lost, or below a block that was lost.
func (r *run) dropListed(t *index.Txn, listed []loc.Loc) error {
	var ids []ID
	dead := make(map[loc.Loc]bool, len(listed))
	for _, l := range listed {
		dead[l] = true
		if p := r.arrivals.at[l]; p != nil {
			ids = append(ids, p.id)
		}
	}
	waiting, err := r.takeBack(t, ids, nil, func(x index.Entry, _ *arrival) (bool, error) {
		return dead[x.Loc], nil
	})
	r.list(waiting)
	return err
}

// list has the next log head list records as dead.
func (r *run) list(dead []*replaced) {
	for _, x := range dead {
		r.Listed[x.entry.Loc] = true
	}
}
