package recovery

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// frame replays one frame: what it says of the index, and then what it says of the catalog.
func (r *run) frame(t *index.Txn, f Frame) error {
	known := f.LSN <= r.Applied.LSN
	r.Changed = r.Changed || !known && f.Kind != oplog.KindSnapshot && f.Kind != oplog.KindBarrier
	r.arrivals.lsn = f.LSN
	if err := f.Op.Replay(replay{r, t, known}); err != nil {
		return fmt.Errorf("log frame %d, %s: %w", f.LSN, f.Op, err)
	}
	at := catalog.Place{File: f.File, Offset: f.Offset}
	if head, ok := f.Op.(oplog.Snapshot); ok {
		r.Adopt(&head, at)
	} else {
		r.Catalog.Apply(f.Op, at)
	}
	return nil
}

// replay is the oplog.Index that the operation of one frame sees. It changes a record only if that is where the frame says.
type replay struct {
	r     *run
	t     *index.Txn
	known bool // the index has what the frame says
}

func (p replay) Put(records []index.Entry, dead []oplog.Dead) error {
	if p.known {
		p.r.coverBloom(records)
		return nil
	}
	return p.r.put(p.t, records, dead)
}

func (p replay) Remove(dead []oplog.Dead, seq uint64) error {
	if p.known {
		return nil
	}
	if err := p.r.remove(p.t, dead); err != nil {
		return err
	}
	return p.r.removeBelow(p.t, dead, seq)
}

func (p replay) RemoveListed(places []loc.Loc) error {
	if p.known {
		return nil
	}
	return p.r.dropListed(p.t, places)
}

func (p replay) Move(op oplog.Move) error {
	if p.known {
		return nil
	}
	return p.r.move(p.t, op)
}

func (p replay) SetFlags(key kv.Key, group uint8, at loc.Loc, flags uint8) error {
	if p.known {
		return nil
	}
	cur, ok, err := p.t.Get(key, group)
	if err != nil || !ok || cur.Loc != at {
		return err
	}
	return p.t.SetFlags(key, group, flags)
}

// DropModel takes out what a model had when it was retired. In a rebuild the scan may have entered what came since, for the same model
// registered again: that lies in other segments.
func (p replay) DropModel(fp kv.Fingerprint, segments []uint64) error {
	if p.known {
		return nil
	}
	gone := func(x index.Entry) bool {
		return x.Model == fp && (!p.r.Rebuilt || slices.Contains(segments, x.Loc.Segment))
	}
	p.r.scan.partial = slices.DeleteFunc(p.r.scan.partial, gone)
	return RemoveModel(p.t, fp, gone)
}

func (p replay) RankBlock(block kv.Key) { p.r.ranks.block(block) }

func (p replay) RankRef(name string) { p.r.ranks.ref(p.r.Catalog, name) }

// coverBloom adds blocks that the index has already: the Bloom filter's file may be older than it.
func (r *run) coverBloom(records []index.Entry) {
	for _, rec := range records {
		if rec.Group == 0 {
			r.addToBloom(rec)
		}
	}
}

func (r *run) addToBloom(x index.Entry) {
	if r.AddKey == nil {
		return
	}
	r.AddKey(x.Key)
	if x.First == 0 {
		r.AddKey(r.Hasher.Opening(x.Parent, x.Scope, x.Hashes))
	}
}

// put enters a frame's records in the place of those that it gives up.
func (r *run) put(t *index.Txn, records []index.Entry, dead []oplog.Dead) error {
	same := map[ID]*replaced{}        // by what the frame has for them
	tails := map[kv.Key][]*replaced{} // by the block before them
	seq := uint64(0)
	for _, rec := range records {
		same[ID{rec.Key, rec.Group}] = nil
		seq = max(seq, rec.Seq)
	}
	for _, d := range dead {
		cur, ok, err := t.Load(d.Key, d.Group)
		if err != nil {
			return err
		}
		if !ok || cur.Loc != d.Loc && !r.movedUnread(&cur, seq) {
			continue // a rebuild: it is destroyed
		}
		x := &replaced{entry: cur}
		if _, again := same[ID{d.Key, d.Group}]; again {
			same[ID{d.Key, d.Group}] = x
			continue
		}
		tails[cur.Parent] = append(tails[cur.Parent], x)
		if err := r.take(t, cur); err != nil {
			return err
		}
	}
	for _, entry := range records {
		if younger, err := r.hasYounger(t, entry); err != nil {
			return err
		} else if younger {
			continue
		}
		if entry.Group == 0 {
			r.addToBloom(entry)
			r.Clock++
			entry.Rank = r.Catalog.Rank(entry.Key, r.Rank(entry, r.Clock))
		}
		if err := t.Put(entry); err != nil {
			return err
		}
		id := ID{entry.Key, entry.Group}
		r.arrivals.instead(entry.Loc, id, same[id])
		r.arrivals.instead(entry.Loc, id, tails[entry.Parent]...)
	}
	return nil
}

// remove takes out those of the dead records that the index still names.
func (r *run) remove(t *index.Txn, dead []oplog.Dead) error {
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

// move follows a record that was copied.
func (r *run) move(t *index.Txn, op oplog.Move) error {
	cur, ok, err := t.Load(op.Key, op.Group)
	if err != nil {
		return err
	}
	id := ID{op.Key, op.Group}
	if ok && cur.Loc == op.From {
		r.arrivals.instead(op.To, id, &replaced{entry: cur})
		return t.SetLoc(op.Key, op.Group, op.To, op.Seq)
	}
	// A rebuild: the old place is destroyed, and the scan found the new one, unless that is, too.
	if x, found := r.scan.logged[op.To]; found && (!ok || cur.Seq < x.Seq) {
		r.arrivals.instead(op.To, id)
		if ok && r.movedUnread(&cur, x.Seq) {
			r.arrivals.instead(op.To, id, &replaced{entry: cur})
		}
		return t.Put(x)
	}
	return nil
}

// movedUnread reports whether a frame of that number may be about cur, though it names another place: the frame that moved cur there may be lost.
// If the disk lost the new place, it may have kept the old one: nothing is destroyed there before a barrier.
func (r *run) movedUnread(cur *index.Entry, seq uint64) bool {
	return r.Log.Damaged() && cur.Seq < seq
}

// removeDead takes out what the scan entered although its destruction was already decided.
func (r *run) removeDead(t *index.Txn) error {
	var dead []oplog.Dead
	if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if r.Catalog.IsDead(x.Loc) {
			dead = append(dead, oplog.Dead{Key: x.Key, Group: x.Group, Loc: x.Loc})
		}
		return true
	}); err != nil {
		return err
	}
	return r.remove(t, dead)
}
