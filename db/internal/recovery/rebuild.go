package recovery

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// batchEntries bounds how many records a rebuild enters at once.
const batchEntries = 1024

// enterSegments is the first step of a rebuild: it enters every record that the segments hold.
func (r *run) enterSegments(ctx context.Context) error {
	r.scan = scan{
		records: map[loc.Loc]bool{}, logged: map[loc.Loc]index.Entry{}, named: r.Log.Names(), dead: r.Log.Tombstones(r.Applied.Extra),
		models: map[kv.Fingerprint]kv.Descriptor{}, logModels: r.loggedModels(),
	}
	if err := r.readDescriptors(); err != nil {
		return err
	}
	var total, done int64
	for _, s := range r.Segments.Segments() {
		total += s.Allocated
	}
	for _, s := range r.Segments.Segments() {
		err := r.enterSegment(ctx, s.ID)
		if errors.Is(err, segments.ErrMissing) {
			continue // it went since its folder was listed
		}
		if err != nil {
			return err
		}
		if done += s.Allocated; r.Progress != nil {
			r.Progress(done, total)
		}
	}
	return nil
}

// readDescriptors reads the descriptors in the headers of the segments.
func (r *run) readDescriptors() error {
	for _, s := range r.Segments.Segments() {
		d, err := r.Segments.Descriptor(s.ID)
		switch {
		case err == nil:
			r.scan.models[d.Fingerprint()] = d
		case errors.Is(err, damage.ErrCorrupt), errors.Is(err, segments.ErrMissing):
			r.Logger.Error("segment is damaged", "error", err) // its records name their model and their place themselves
			if r.scan.lengths == nil {
				r.scan.keepLengths()
			}
		default:
			return err // too many open files, say: what is not entered now would be unlinked as dead
		}
	}
	return nil
}

// enterSegment enters the records of one segment.
func (r *run) enterSegment(ctx context.Context, id uint64) error {
	var batch []index.Entry
	enter := func() error {
		err := r.enterYounger(batch)
		batch = batch[:0]
		return err
	}
	_, err := r.Segments.Scan(ctx, id, 0, func(at loc.Loc, rec *segments.Record) error {
		if x, ok := r.found(at, rec); ok {
			batch = append(batch, x)
		}
		if len(batch) >= batchEntries {
			return enter()
		}
		return nil
	}, func(d *damage.Error) {
		if !errors.Is(d, segments.ErrRemains) {
			r.Logger.Error("segment is damaged", "error", d)
		}
		if r.Log.Damaged() || !r.Log.Young(loc.Loc{Segment: id, Offset: d.Offset}) { // else the log names what was there
			r.Damage = append(r.Damage, d)
		}
	})
	if err != nil {
		return err
	}
	return enter()
}

// found sorts a record by what the log says of it. It returns an entry if that is to be entered before the log is replayed.
func (r *run) found(at loc.Loc, rec *segments.Record) (x index.Entry, enter bool) {
	s := &r.scan
	at = s.place(at)
	if s.dead[at] {
		return x, false // it may be younger than the copy that lives
	}
	if r.unwanted(at, rec) {
		r.foundDead(at) // never acknowledged, or torn
		return x, false
	}
	x, ok := r.entryOf(at, rec)
	if !ok {
		r.Left = append(r.Left, x)
		return x, false
	}
	s.records[at] = true
	s.seq = max(s.seq, x.Seq)
	switch _, named := s.named.Put[at]; {
	case named:
		s.logged[at] = x // the log says when it comes, and whether it stays
	case r.Log.Young(at) && rec.Verify() != nil:
		s.partial = append(s.partial, x)
	default:
		return x, true
	}
	return x, false
}

// enterYounger enters records, unless the index has a later copy.
func (r *run) enterYounger(batch []index.Entry) error {
	return r.Index.Update(func(t *index.Txn) error {
		for _, x := range batch {
			old, ok, err := t.Get(x.Key, x.Group)
			if err != nil {
				return err
			}
			if ok && old.Seq > x.Seq {
				continue
			}
			if err := t.Put(x); err != nil {
				return err
			}
		}
		return nil
	})
}

// unwanted reports whether a record was never acknowledged, or a power cut tore it. Where the log is damaged, a frame that is lost may have
// named it; and what a barrier covers is damaged, if it is not whole.
func (r *run) unwanted(at loc.Loc, rec *segments.Record) bool {
	if !r.Log.Young(at) || r.Log.Damaged() {
		return false
	}
	lsn, named := r.scan.named.Put[at]
	return !named || lsn > r.Log.Barrier && rec.Verify() != nil
}

// loggedModels are the descriptors in the log and in the small state of the index, for segments whose header is lost.
func (r *run) loggedModels() map[kv.Fingerprint]kv.Descriptor {
	out := map[kv.Fingerprint]kv.Descriptor{}
	add := func(all ...oplog.Model) {
		for i := range all {
			if d, err := all[i].Descriptor(); err == nil {
				out[all[i].Fingerprint] = d
			}
		}
	}
	if head, err := ReadHead(r.Applied.Extra); err == nil {
		add(head.Models...)
	}
	for _, f := range r.Log.Frames {
		if head, ok := f.Op.(oplog.Snapshot); ok {
			add(head.Models...)
		}
		if m, ok := f.Op.(oplog.Model); ok {
			add(m)
		}
	}
	return out
}

// entryOf makes an index entry from a record alone, if the descriptor of its model is known.
func (r *run) entryOf(at loc.Loc, rec *segments.Record) (entry index.Entry, ok bool) {
	entry = index.Entry{
		Key: rec.Key(), Group: rec.Group(), Parent: rec.Parent(), Model: rec.Model(), Scope: rec.Scope(), Loc: at,
		First: rec.First(), Tokens: uint16(rec.TokenCount()), RowCount: uint16(rec.TokenCount()), Seq: rec.Seq(), Created: rec.Created(),
	}
	d, ok := r.scan.model(rec.Model())
	if !ok || int(rec.Group()) >= len(d.Groups) {
		return entry, false
	}
	if rec.Tensors() > 0 && d.Groups[rec.Group()].Kind == kv.Window {
		te := rec.Tensor(0)
		entry.RowFirst, entry.RowCount = te.FirstRow, te.Rows
	}
	if rec.Group() == 0 {
		p := rec.Prompt()
		entry.Hashes = r.Hasher.AppendTokenHashes(nil, &p, 0, len(p.Tokens))
		entry.Rank = r.Rank(entry, entry.Seq) & catalog.RankMask
		if entry.Tokens < uint16(d.BlockTokens) {
			entry.Flags |= index.FlagPartial
		}
	}
	return entry, true
}
