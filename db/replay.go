package db

import (
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// apply brings the small state, and the index from its own last frame on, to the end of the log, as if no power cut had taken
// anything; what one took is undone at the end. A record is taken out or moved only if it is where the frame says.
func (r *recovery) apply() error {
	e := r.e
	if !r.hasFirst && len(r.applied.Extra) > 0 {
		// The log's head is lost: the index has a copy of what it said.
		if st, _, err := decodeSnapshot(r.applied.Extra); err == nil {
			*st.origin = placeOfFrame{file: e.path(indexName)}
			r.adoptState(st)
		}
	}
	err := e.ix.Update(func(t *index.Txn) error {
		for _, f := range r.frames {
			if err := r.frame(t, f); err != nil {
				return err
			}
		}
		if err := r.dropLost(t); err != nil {
			return err
		}
		if r.trouble != nil {
			return r.trouble
		}
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
			e.state.addModel(newOpModel(&d, 0))
		}
	}
	for fp := range e.state.notes {
		if e.state.models[fp] == nil { // the part of the log that said so is damaged
			e.state.dropNotes(fp)
		}
	}
	return nil
}

// adoptState replaces the small state by a snapshot's, and queues what that still had to destroy. What an earlier head
// lists and this one does not was destroyed, or is alive again because a power cut took what stood in its place. What this replay found
// dead stays on the list.
func (r *recovery) adoptState(st *smallState) {
	e := r.e
	for l := range r.found {
		st.doomed[l] = struct{}{}
	}
	e.state = st
	e.fresh = e.fresh[:0]
	for l := range st.doomed {
		e.fresh = append(e.fresh, l.loc())
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

func (r *recovery) frame(t *index.Txn, f wal.Frame) error {
	e := r.e
	index := f.LSN > r.applied.LSN && f.Kind != frameSnapshot
	r.changed = r.changed || index && f.Kind != frameBarrier
	r.lsn = f.LSN
	switch f.Kind {
	case frameSnapshot:
		st, _, err := r.snapshot(f)
		if err != nil {
			return &CorruptError{File: f.File, Offset: f.Offset, What: "log head", Err: err}
		}
		if f.LSN > r.applied.LSN {
			if err := r.dropListed(t, st.doomed); err != nil {
				return err
			}
		}
		delete(r.heads, placeOfFrame{f.File, f.Offset})
		r.adoptState(st)
	case framePut:
		op, err := decodeOp[opPut](f)
		if err != nil {
			return err
		}
		if !index {
			r.coverBloom(op)
		} else if err := r.put(t, op); err != nil {
			return err
		}
		e.doom(op.Dead, len(op.Dead) > 0)
	case frameRemove:
		op, err := decodeOp[opRemove](f)
		if err != nil {
			return err
		}
		if index {
			if err := r.remove(t, op.Dead); err != nil {
				return err
			}
			if err := r.removeBelow(t, op); err != nil {
				return err
			}
		}
		e.doom(op.Dead, op.Deleted)
		for _, name := range op.Refs {
			r.rankRef(name)
		}
		e.state.removed(op)
	case frameMove:
		op, err := decodeOp[opMove](f)
		if err != nil {
			return err
		}
		if index {
			if err := r.move(t, op); err != nil {
				return err
			}
		}
		e.doom([]opDead{{Key: op.Key, Group: op.Group, Loc: op.From}}, true)
	case frameModel:
		op, err := decodeOp[opModel](f)
		if err != nil {
			return err
		}
		e.state.addModel(op).from = &placeOfFrame{f.File, f.Offset}
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
	case frameNote:
		op, err := decodeOp[opNote](f)
		if err != nil {
			return err
		}
		e.state.setNote(op)
	case frameBarrier: // readLog has it
	default:
		return &CorruptError{File: f.File, Offset: f.Offset, What: "log frame kind", Expected: "1 to 11", Found: itoa(int(f.Kind))}
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

// put enters a frame's records in the place of those that it gives up.
func (r *recovery) put(t *index.Txn, op opPut) error {
	same := map[recordID]*replaced{}  // by what the frame has for them
	tails := map[kv.Key][]*replaced{} // by the block before them
	for _, rec := range op.Records {
		same[rec.id()] = nil
	}
	for _, d := range op.Dead {
		cur, ok, err := t.Load(d.Key, d.Group)
		if err != nil {
			return err
		}
		if !ok || toOpLoc(cur.Loc) != d.Loc {
			continue // a rebuild: it is destroyed
		}
		x := &replaced{entry: cur}
		if _, again := same[d.id()]; again {
			same[d.id()] = x
			continue
		}
		tails[cur.Parent] = append(tails[cur.Parent], x)
		if err := r.take(t, cur); err != nil {
			return err
		}
	}
	for _, rec := range op.Records {
		entry := rec.entry()
		if younger, err := r.hasYounger(t, entry); err != nil {
			return err
		} else if younger {
			continue
		}
		if entry.Group == 0 {
			r.addToBloom(entry)
			entry.Rank = r.e.rank(entry)
		}
		if err := t.Put(entry); err != nil {
			return err
		}
		r.instead(rec.Loc, rec.id(), same[rec.id()])
		r.instead(rec.Loc, rec.id(), tails[rec.Parent]...)
	}
	return nil
}

// remove takes out those of the dead records that the index still names.
func (r *recovery) remove(t *index.Txn, dead []opDead) error {
	for _, d := range dead {
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

func (r *recovery) move(t *index.Txn, op opMove) error {
	cur, ok, err := t.Load(op.Key, op.Group)
	if err != nil {
		return err
	}
	id := recordID{op.Key, op.Group}
	if ok && toOpLoc(cur.Loc) == op.From {
		r.instead(op.To, id, &replaced{entry: cur})
		return t.SetLoc(op.Key, op.Group, op.To.loc(), op.Birth)
	}
	// A rebuild: the old place is destroyed, and the scan found the new one, unless that is, too.
	if x, found := r.logged[op.To]; found && (!ok || cur.Birth < x.Birth) {
		r.instead(op.To, id)
		return t.Put(x)
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
