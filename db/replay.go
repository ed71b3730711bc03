package db

import (
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// apply brings the small state, and the index from its own last frame on, to the end of the log, as if no power cut had taken
// anything; what one took is undone at the end. A record is taken out or moved only if it is where the frame says.
func (r *recovery) apply() error {
	e := r.e
	if !r.hasFirst && len(r.applied.Extra) > 0 {
		// The log's head is lost: the index has a copy of what it said.
		if head, err := readHead(r.applied.Extra); err == nil {
			r.adopt(&head, catalog.Place{File: e.path(indexName)})
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
		if e.catalog.Model(fp) == nil && !r.retired(fp) {
			e.catalog.Apply(oplog.NewModel(&d, 0), catalog.Place{})
		}
	}
	e.catalog.DropStrayNotes()
	return nil
}

// adopt replaces the catalog by that of a log head, with what that still had to destroy. What an earlier head
// lists and this one does not was destroyed, or is alive again because a power cut took what stood in its place. What this replay found
// dead stays on the list.
func (r *recovery) adopt(head *oplog.Snapshot, at catalog.Place) {
	c := catalog.Of(head, at)
	for l := range r.found {
		if !c.IsTombstone(l) {
			c.BuryAt(l)
		}
	}
	if r.e.catalog.Behind() {
		c.Unlink(true)
	}
	r.e.catalog = c
}

// retired reports whether the log says that a model was retired; its segments may still be there.
func (r *recovery) retired(fp kv.Fingerprint) bool {
	for _, f := range r.frames {
		if op, ok := f.op.(oplog.Retire); ok && op.Model == fp {
			return true
		}
	}
	for _, id := range r.e.catalog.Unlinked() {
		if d, err := r.e.set.Descriptor(id); err == nil && d.Fingerprint() == fp {
			return true
		}
	}
	return false
}

func (r *recovery) frame(t *index.Txn, f logFrame) error {
	e := r.e
	index := f.LSN > r.applied.LSN && f.Kind != oplog.KindSnapshot
	r.changed = r.changed || index && f.Kind != oplog.KindBarrier
	r.lsn = f.LSN
	at := catalog.Place{File: f.File, Offset: f.Offset}
	if head, ok := f.op.(oplog.Snapshot); ok {
		if f.LSN > r.applied.LSN {
			if err := r.dropListed(t, head.Tombstones); err != nil {
				return err
			}
		}
		r.adopt(&head, at)
		return nil
	}
	switch op := f.op.(type) { // what is said of ranks needs the catalog before the frame
	case oplog.Put:
		if !index {
			r.coverBloom(op)
		} else if err := r.put(t, op); err != nil {
			return err
		}
	case oplog.Remove:
		if index {
			if err := r.remove(t, op.Dead); err != nil {
				return err
			}
			if err := r.removeBelow(t, op); err != nil {
				return err
			}
		}
		for _, name := range op.Refs {
			r.rankRef(name)
		}
	case oplog.Move:
		if index {
			if err := r.move(t, op); err != nil {
				return err
			}
		}
	case oplog.Retire:
		if index {
			if err := r.retire(t, op); err != nil {
				return err
			}
		}
	case oplog.Ref:
		r.rankRef(op.Name)
		r.rankAnew(op.Block)
	case oplog.Unref:
		r.rankRef(op.Name)
	case oplog.Flag:
		if !index {
			break
		}
		cur, ok, err := t.Get(op.Key, op.Group)
		if err == nil && ok && cur.Loc == op.Loc {
			err = t.SetFlags(op.Key, op.Group, op.Flags)
		}
		if err != nil {
			return err
		}
	}
	e.catalog.Apply(f.op, at)
	return nil
}

// retire takes out what a model had when it was retired. In a rebuild the scan may have entered what came since, for the same model
// registered again: that lies in other segments.
func (r *recovery) retire(t *index.Txn, op oplog.Retire) error {
	return removeModel(t, op.Model, func(x index.Entry) bool { return !r.rebuild || slices.Contains(op.Segments, x.Loc.Segment) })
}

// coverBloom adds blocks that the index has already: the Bloom filter's file may be older than it.
func (r *recovery) coverBloom(op oplog.Put) {
	for _, rec := range op.Records {
		if rec.Group == 0 {
			r.addToBloom(rec.Entry())
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
func (r *recovery) put(t *index.Txn, op oplog.Put) error {
	same := map[recordID]*replaced{}  // by what the frame has for them
	tails := map[kv.Key][]*replaced{} // by the block before them
	for _, rec := range op.Records {
		same[recordID{rec.Key, rec.Group}] = nil
	}
	for _, d := range op.Dead {
		cur, ok, err := t.Load(d.Key, d.Group)
		if err != nil {
			return err
		}
		if !ok || cur.Loc != d.Loc {
			continue // a rebuild: it is destroyed
		}
		x := &replaced{entry: cur}
		if _, again := same[recordID{d.Key, d.Group}]; again {
			same[recordID{d.Key, d.Group}] = x
			continue
		}
		tails[cur.Parent] = append(tails[cur.Parent], x)
		if err := r.take(t, cur); err != nil {
			return err
		}
	}
	for _, rec := range op.Records {
		entry := rec.Entry()
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
		id := recordID{rec.Key, rec.Group}
		r.instead(rec.Loc, id, same[id])
		r.instead(rec.Loc, id, tails[rec.Parent]...)
	}
	return nil
}

// remove takes out those of the dead records that the index still names.
func (r *recovery) remove(t *index.Txn, dead []oplog.Dead) error {
	for _, d := range dead {
		cur, ok, err := t.Get(d.Key, d.Group)
		if err != nil {
			return err
		}
		if ok && cur.Loc == d.Loc {
			if err := r.take(t, cur); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recovery) move(t *index.Txn, op oplog.Move) error {
	cur, ok, err := t.Load(op.Key, op.Group)
	if err != nil {
		return err
	}
	id := recordID{op.Key, op.Group}
	if ok && cur.Loc == op.From {
		r.instead(op.To, id, &replaced{entry: cur})
		return t.SetLoc(op.Key, op.Group, op.To, op.Seq)
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
	var dead []oplog.Dead
	if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if r.e.catalog.IsDead(x.Loc) {
			dead = append(dead, oplog.Dead{Key: x.Key, Group: x.Group, Loc: x.Loc})
		}
		return true
	}); err != nil {
		return err
	}
	return r.remove(t, dead)
}
