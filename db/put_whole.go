package db

import (
	"errors"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// firstWhole returns how many of the first n blocks of the chain come before one that may have to be stored anew.
func (w *putter) firstWhole(n int) (int, error) {
	for i := range n {
		k := w.chain.Key(i)
		if w.e.doubtful(k) {
			return i, nil
		}
		if ok, err := w.e.whole(k, 0); err != nil || !ok {
			return i, err
		}
	}
	return n, nil
}

// whole reports whether a record is stored and there, as far as its header says. One that is not there is flagged, so that a put stores it
// anew. What cannot be read just now is taken to be whole. The caller holds no lock.
func (e *engine) whole(k kv.Key, group uint8) (bool, error) {
	lease := e.glance() // before the index is asked: what that names stays until then
	v := e.view()
	x, ok, err := v.Get(k, group)
	v.Release()
	var bad error
	if err == nil && ok {
		bad = e.set.Read(x.Loc, func(r *segments.Record) error {
			if r.Key() != k || r.Group() != group {
				return errElsewhere
			}
			return nil
		})
	}
	e.endGlance(lease)
	if bad != nil && !passing(bad) {
		e.reportDamage(k, group, x.Loc, bad)
		return false, nil
	}
	return ok, err
}

// errElsewhere says that the index names a place where another record lies.
var errElsewhere = errors.New("another record lies there")
