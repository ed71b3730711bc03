package db

import (
	"cmp"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// What replay keeps although the log gave it up, because a power cut took what should have come in its place.

// spare keeps records that the log, and heads of later log files, have given up, if the index still names them.
func (r *recovery) spare(t *index.Txn, dead []opDead) error {
	if r.spared == nil {
		r.spared = map[opLoc]bool{}
	}
	for _, d := range dead {
		cur, ok, err := t.Get(d.Key, d.Group)
		if err != nil {
			return err
		}
		if !ok || toOpLoc(cur.Loc) != d.Loc {
			r.giveUp([]opDead{d}, false)
			continue
		}
		if r.intact(d.Key, d.Group, d.Loc) {
			r.spared[d.Loc] = true
			continue
		}
		if !r.rebuild {
			if on, ok := r.onward(d.Key, d.Group, d.Loc); ok { // it stood in for something before, and was moved then
				if err := t.SetLoc(d.Key, d.Group, on.To.index(), on.Birth); err != nil {
					return err
				}
				continue
			}
		}
		bears, err := bears(t, cur, dead)
		if err != nil {
			return err
		}
		if bears || d.Group == 0 && !r.rebuild && r.renewed(d.Loc) { // what hangs below a damaged block stays, or comes yet
			r.spared[d.Loc] = true
			r.broken = append(r.broken, d.Key)
			if err := t.SetFlags(d.Key, d.Group, cur.Flags|index.FlagDamaged); err != nil {
				return err
			}
			continue
		}
		if err := r.take(t, cur); err != nil {
			return err
		}
		r.giveUp([]opDead{d}, false)
	}
	return nil
}

// bears reports whether something would be stored without its prefix, or without its block, if x went with those dead ones.
func bears(t *index.Txn, x index.Entry, dead []opDead) (yes bool, err error) {
	if x.Group > 0 {
		return false, nil
	}
	if yes, err = t.HasChildren(x.Key); err != nil || yes {
		return yes, err
	}
	err = t.Groups(x.Key, func(g index.Entry) bool {
		goes := slices.ContainsFunc(dead, func(d opDead) bool { return d.Loc == toOpLoc(g.Loc) })
		yes = yes || g.Group > 0 && !goes
		return !yes
	})
	return yes, err
}

func (r *recovery) giveUp(dead []opDead, copied bool) {
	for _, d := range dead {
		delete(r.spared, d.Loc)
	}
	r.e.doom(dead, copied && len(dead) > 0)
}

// dropCutOff gives up what was spared and has lost its prefix since.
func (r *recovery) dropCutOff(t *index.Txn) error {
	if len(r.spared) == 0 {
		return nil
	}
	var spared []index.Entry
	if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if r.spared[toOpLoc(x.Loc)] {
			spared = append(spared, x)
		}
		return true
	}); err != nil {
		return err
	}
	slices.SortFunc(spared, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.First, b.First))
	})
	for _, x := range spared {
		need := x.Parent
		if x.Group > 0 {
			need = x.Key
		}
		if _, ok, err := t.Get(need, 0); err != nil || ok || x.Group == 0 && x.First == 0 {
			if err != nil {
				return err
			}
			continue
		}
		d := []opDead{{Key: x.Key, Group: x.Group, Loc: toOpLoc(x.Loc)}}
		if err := r.remove(t, d); err != nil {
			return err
		}
		r.giveUp(d, false)
	}
	return nil
}

// keepSpared takes the spared records off the lists of what is to be destroyed, and lists those that are damaged.
func (r *recovery) keepSpared() {
	e := r.e
	for _, k := range r.broken {
		e.state.flagged[k] = struct{}{}
	}
	for l := range r.spared {
		delete(e.state.doomed, l)
	}
	e.fresh = slices.DeleteFunc(e.fresh, func(l segments.Loc) bool { return r.spared[toOpLoc(indexLoc(l))] })
}

// standInFor notes what stays in the place of lost records: it goes when they would have gone.
func (r *recovery) standInFor(t *index.Txn, lost []opRecord, dead []opDead) error {
	if r.standIn == nil {
		r.standIn = map[opLoc][]opDead{}
	}
	for _, d := range dead {
		for _, rec := range lost {
			for _, in := range r.standIn[d.Loc] {
				if !slices.Contains(r.standIn[rec.Loc], in) { // records of several groups stand in for several
					r.standIn[rec.Loc] = append(r.standIn[rec.Loc], in)
				}
			}
		}
		old, ok, err := t.Get(d.Key, 0)
		if err != nil {
			return err
		}
		for _, rec := range lost {
			if rec.Key == d.Key || ok && old.Parent == rec.Parent {
				r.standIn[rec.Loc] = append(r.standIn[rec.Loc], d)
			}
		}
	}
	return nil
}

// intact reports whether every byte of a replayed record is as it was written. An error that says nothing about the bytes
// (too many open files, no memory) ends the Open: nothing is given up for that.
func (r *recovery) intact(key kv.Key, group uint8, loc opLoc) bool {
	err := r.e.set.Read(loc.segment(), func(rec *segments.Record) error {
		if rec.Key() != key || rec.Group() != group {
			return segments.ErrDestroyed
		}
		for i := range rec.Tensors() {
			if err := rec.VerifyPlane(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, segments.ErrDestroyed) && !errors.Is(err, segments.ErrMissing) {
		r.trouble = errors.Join(r.trouble, err)
	}
	return err == nil
}
