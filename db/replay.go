package db

import (
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// apply brings the small state, and the index from its own last frame on, to the end of the log. Every change to the
// index applies only if the key is still where the frame says: replaying a frame twice, or over a scan that saw its
// outcome, changes nothing.
func (r *recovery) apply() error {
	e := r.e
	if !r.hasFirst && len(r.applied.Extra) > 0 {
		// The log's head is lost: the index has a copy of what it said.
		if st, _, err := decodeSnapshot(r.applied.Extra); err == nil {
			r.adoptState(st)
		}
	}
	reboot := r.reboot()
	if reboot && !r.rebuild {
		r.nameRecords()
	}
	err := e.ix.Update(func(t *index.Txn) error {
		for _, f := range r.frames {
			if err := r.frame(t, f, reboot); err != nil {
				return err
			}
		}
		if err := r.dropCutOff(t); err != nil {
			return err
		}
		if r.trouble != nil {
			return r.trouble
		}
		r.keepSpared()
		if r.rebuild {
			if err := r.removeDoomed(t); err != nil {
				return err
			}
		}
		return r.classes(t)
	})
	if err != nil {
		return err
	}
	for fp, d := range r.fromScan {
		if e.state.models[fp] == nil && !r.retired(fp) {
			e.state.addModel(opModel{Descriptor: d})
		}
	}
	return nil
}

// adoptState replaces the small state by a snapshot's, and queues what that still had to destroy. What an earlier head
// lists and this one does not was destroyed, or is alive again because a power cut took what stood in its place.
func (r *recovery) adoptState(st *smallState) {
	e := r.e
	for l := range r.found {
		st.doomed[l] = struct{}{}
	}
	e.state = st
	e.fresh = e.fresh[:0]
	for l := range st.doomed {
		e.fresh = append(e.fresh, l.segment())
	}
}

// retired reports whether the log says that a model was retired; its segments may still be there.
func (r *recovery) retired(fp kv.Fingerprint) bool {
	for _, f := range r.frames {
		if f.Kind == frameRetire {
			if op, err := decodeOp[opRetire](f); err == nil && op.Model == fp {
				return true
			}
		}
	}
	for id := range r.e.state.doomedSegments {
		if d, err := r.e.set.Descriptor(id); err == nil && d.Fingerprint() == fp {
			return true
		}
	}
	return false
}

func (r *recovery) frame(t *index.Txn, f wal.Frame, reboot bool) error {
	e := r.e
	index := f.LSN > r.applied.LSN && f.Kind != frameSnapshot
	r.changed = r.changed || index
	switch f.Kind {
	case frameSnapshot:
		st, _, err := decodeSnapshot(f.Payload)
		if err != nil {
			return &CorruptError{File: f.File, Offset: f.Offset, What: "log head", Err: err}
		}
		r.adoptState(st)
	case framePut:
		op, err := decodeOp[opPut](f)
		if err != nil {
			return err
		}
		if !index {
			r.coverBloom(op)
		} else if kept, err := r.put(t, op, reboot); err != nil {
			return err
		} else if !kept {
			return r.spare(t, op.Dead) // what it replaced is still all there is
		}
		r.giveUp(op.Dead, true)
	case frameRemove:
		op, err := decodeOp[opRemove](f)
		if err != nil {
			return err
		}
		if index {
			if err := r.remove(t, op.Dead); err != nil {
				return err
			}
		}
		r.giveUp(op.Dead, false)
		for _, name := range op.Refs {
			r.rankRef(name)
			e.state.dropRef(name)
		}
	case frameMove:
		op, err := decodeOp[opMove](f)
		if err != nil {
			return err
		}
		return r.move(t, op, index, reboot)
	case frameModel:
		op, err := decodeOp[opModel](f)
		if err != nil {
			return err
		}
		e.state.addModel(op)
	case frameRetire:
		op, err := decodeOp[opRetire](f)
		if err != nil {
			return err
		}
		e.applyRetire(op)
		if index {
			return r.retire(t, op)
		}
	case frameRef:
		ref, err := decodeOp[Ref](f)
		if err != nil {
			return err
		}
		r.rankRef(ref.Name)
		r.rankAnew(ref.Block)
		e.state.setRef(ref)
	case frameUnref:
		op, err := decodeOp[opUnref](f)
		if err != nil {
			return err
		}
		r.rankRef(op.Name)
		e.state.dropRef(op.Name)
	case frameFlag:
		op, err := decodeOp[opFlag](f)
		if err != nil {
			return err
		}
		e.state.flagged[op.Key] = struct{}{}
		if !index {
			return nil
		}
		cur, ok, err := t.Get(op.Key, op.Group)
		if err != nil || !ok || toOpLoc(cur.Loc) != op.Loc {
			return err
		}
		return t.SetFlags(op.Key, op.Group, op.Flags)
	default:
		return &CorruptError{File: f.File, Offset: f.Offset, What: "log frame kind", Expected: "2 to 9", Found: itoa(int(f.Kind))}
	}
	return nil
}

// retire takes out what a model had when it was retired. In a rebuild the scan may have entered what came since, for the same model
// registered again: that lies in other segments.
func (r *recovery) retire(t *index.Txn, op opRetire) error {
	return removeModel(t, op.Model, func(x index.Entry) bool { return !r.rebuild || slices.Contains(op.Segments, x.Loc.Segment) })
}

// coverBloom adds blocks that the index has already: the Bloom filter's file may be older than it.
func (r *recovery) coverBloom(op opPut) {
	for _, rec := range op.Records {
		if rec.Group == 0 {
			r.addToBloom(rec.entry())
		}
	}
}

func (r *recovery) addToBloom(x index.Entry) {
	r.e.addToBloom(x.Key)
	if x.First == 0 {
		r.e.addToBloom(r.e.hasher.Opening(x.Parent, x.Scope, x.Hashes))
	}
}

// put enters a frame's records. One whose bytes a power cut took, or whose prefix is gone with such, is dropped; then the
// records that the frame replaces are kept.
func (r *recovery) put(t *index.Txn, op opPut, reboot bool) (kept bool, err error) {
	kept = true
	var lost []opRecord
	for _, rec := range op.Records {
		if r.rebuild && !r.scanned[rec.Loc] {
			if r.lost(rec.Loc) {
				kept = false
				lost = append(lost, rec)
			}
			continue
		}
		hangs, err := r.hangs(t, rec)
		if err != nil {
			return false, err
		}
		stays := hangs && (!reboot || r.intact(rec.Key, rec.Group, rec.Loc))
		if hangs && !stays && !r.rebuild {
			if on, ok := r.onward(rec.Key, rec.Group, rec.Loc); ok {
				rec.Loc, rec.Birth, stays = on.To, on.Birth, true
			}
		}
		if !stays {
			if !r.outlived(rec.Loc) {
				kept = false
				lost = append(lost, rec)
			}
			if !hangs || rec.Group > 0 || r.rebuild || !r.renewed(rec.Loc) {
				r.doom(rec.Loc.index())
				continue
			}
			rec.Flags |= index.FlagDamaged // for what hangs below it, until what took its place comes
		}
		entry := rec.entry()
		if entry.Group == 0 {
			r.addToBloom(entry)
			entry.Rank = r.e.rank(entry)
		}
		if err := t.Put(entry); err != nil {
			return false, err
		}
	}
	if !kept {
		return false, r.standInFor(t, lost, op.Dead)
	}
	return true, r.remove(t, op.Dead)
}

// hangs reports whether the block before a record is there, or the block that it is of. After a rebuild, that is seen to at the end.
func (r *recovery) hangs(t *index.Txn, rec opRecord) (bool, error) {
	need := rec.Parent
	switch {
	case r.rebuild || rec.Group == 0 && rec.First == 0:
		return true, nil
	case rec.Group > 0:
		need = rec.Key
	}
	_, ok, err := t.Get(need, 0)
	return ok, err
}

// remove takes out those of the dead records that the index still names.
func (r *recovery) remove(t *index.Txn, dead []opDead) error {
	for _, d := range dead {
		if in := r.standIn[d.Loc]; len(in) > 0 {
			delete(r.standIn, d.Loc)
			if err := r.remove(t, in); err != nil {
				return err
			}
			r.giveUp(in, false)
		}
		cur, ok, err := t.Get(d.Key, d.Group)
		if err != nil {
			return err
		}
		if ok && toOpLoc(cur.Loc) == d.Loc {
			if err := r.take(t, cur); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recovery) move(t *index.Txn, op opMove, index, reboot bool) error {
	cur, ok, err := t.Get(op.Key, op.Group)
	if err != nil {
		return err
	}
	if ok && toOpLoc(cur.Loc) == op.From && index && r.rebuild && !r.scanned[op.To] {
		if on, moved := r.movedOn(op.To); moved && (!reboot || r.intact(op.Key, op.Group, on.To)) {
			r.giveUp([]opDead{{Key: op.Key, Group: op.Group, Loc: op.From}}, true)
			return t.SetLoc(op.Key, op.Group, on.To.index(), on.Birth)
		}
	}
	if ok && toOpLoc(cur.Loc) == op.From && index && !r.rebuild && reboot && !r.intact(op.Key, op.Group, op.To) {
		if on, moved := r.onward(op.Key, op.Group, op.To); moved {
			r.giveUp([]opDead{{Key: op.Key, Group: op.Group, Loc: op.From}}, true)
			return t.SetLoc(op.Key, op.Group, on.To.index(), on.Birth)
		}
	}
	if in := r.standIn[op.From]; index && len(in) > 0 && !(ok && toOpLoc(cur.Loc) == op.From) { // it goes when the copy goes
		r.standIn[op.To] = append(r.standIn[op.To], in...)
	}
	switch {
	case ok && toOpLoc(cur.Loc) == op.To: // seen by the scan, or applied before
		r.giveUp([]opDead{{Key: op.Key, Group: op.Group, Loc: op.From}}, true)
		return nil
	case ok && toOpLoc(cur.Loc) == op.From && index && (reboot && !r.intact(op.Key, op.Group, op.To) || r.rebuild && r.lost(op.To)):
		r.doom(op.To.index()) // a power cut took the copy before anybody gave up the original
		if r.standIn == nil {
			r.standIn = map[opLoc][]opDead{}
		}
		r.standIn[op.To] = append(r.standIn[op.To], opDead{Key: op.Key, Group: op.Group, Loc: op.From})
		return r.spare(t, []opDead{{Key: op.Key, Group: op.Group, Loc: op.From}})
	case ok && toOpLoc(cur.Loc) == op.From && index && r.rebuild && !r.scanned[op.To]:
		// It was removed since, or a longer block took its place. The new place is destroyed already, the old one not yet:
		// nothing later in the log names it.
		d := []opDead{{Key: op.Key, Group: op.Group, Loc: op.From}}
		r.giveUp(d, true)
		return r.remove(t, d)
	case ok && toOpLoc(cur.Loc) == op.From && index:
		r.giveUp([]opDead{{Key: op.Key, Group: op.Group, Loc: op.From}}, true)
		return t.SetLoc(op.Key, op.Group, op.To.index(), op.Birth)
	}
	return nil
}

// removeDoomed takes out what the scan entered although its destruction was already decided.
func (r *recovery) removeDoomed(t *index.Txn) error {
	var dead []opDead
	if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		_, doomed := r.e.state.doomed[toOpLoc(x.Loc)]
		_, gone := r.e.state.doomedSegments[x.Loc.Segment]
		if doomed || gone {
			dead = append(dead, opDead{Key: x.Key, Group: x.Group, Loc: toOpLoc(x.Loc)})
		}
		return true
	}); err != nil {
		return err
	}
	return r.remove(t, dead)
}
