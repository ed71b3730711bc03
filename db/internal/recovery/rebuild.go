package recovery

import (
	"context"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// enterSegments is the first step of a rebuild: it enters every record that the segments hold. What is not live any more is sorted out by the log.
func (r *run) enterSegments(ctx context.Context) error {
	r.scanned, r.logged = map[loc.Loc]bool{}, map[loc.Loc]index.Entry{}
	r.fromScan = map[kv.Fingerprint]kv.Descriptor{}
	r.named = r.Log.Names()
	doomed := r.Log.Tombstones(r.Applied.Extra)
	var headless bool // one of the segments
	var total, done int64
	for _, s := range r.Segments.Segments() {
		total += s.Allocated
	}
	for _, s := range r.Segments.Segments() {
		if d, err := r.Segments.Descriptor(s.ID); err == nil {
			r.fromScan[d.Fingerprint()] = d
		} else if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, segments.ErrMissing) {
			r.Logger.Error("segment is damaged", "error", err) // its records name their model and their place themselves
			headless = true
		} else {
			return err // too many open files, say: what is not entered now would be unlinked as dead
		}
	}
	r.fromLog = r.loggedModels()
	var lengths map[loc.Loc]int64
	if headless {
		lengths = r.loggedLengths(doomed)
	}
	for _, s := range r.Segments.Segments() {
		var batch []index.Entry
		flush := func() error {
			err := r.Index.Update(func(t *index.Txn) error {
				for _, entry := range batch {
					old, ok, err := t.Get(entry.Key, entry.Group)
					if err != nil {
						return err
					}
					if ok && old.Seq > entry.Seq {
						continue
					}
					if err := t.Put(entry); err != nil {
						return err
					}
				}
				return nil
			})
			batch = batch[:0]
			return err
		}
		_, err := r.Segments.Scan(ctx, s.ID, 0, func(at loc.Loc, rec *segments.Record) error {
			if n, ok := lengths[loc.Loc{Segment: at.Segment, Offset: at.Offset}]; ok {
				at.Length = n
			}
			if doomed[at] {
				return nil // it may be younger than the copy that lives
			}
			if r.unwanted(at, rec) {
				r.doom(at) // never acknowledged, or torn
				return nil
			}
			entry, ok := r.entryOf(at, rec)
			if !ok {
				r.Left = append(r.Left, entry)
			} else {
				r.scanned[at] = true
				r.scanSeq = max(r.scanSeq, entry.Seq)
				switch _, named := r.named.Put[at]; {
				case named:
					r.logged[at] = entry // the log says when it comes, and whether it stays
				case r.Log.Young(at) && rec.Verify() != nil:
					r.partial = append(r.partial, entry)
				default:
					batch = append(batch, entry)
				}
			}
			if len(batch) >= 1024 {
				return flush()
			}
			return nil
		}, func(d *damage.Error) {
			if !errors.Is(d, segments.ErrRemains) {
				r.Logger.Error("segment is damaged", "error", d)
			}
			if r.Log.Damaged() || !r.Log.Young(loc.Loc{Segment: s.ID, Offset: d.Offset}) { // else the log names what was there
				r.Damage = append(r.Damage, d)
			}
		})
		if errors.Is(err, segments.ErrMissing) {
			continue // it went since its folder was listed
		}
		if err == nil {
			err = flush()
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

// loggedLengths are the lengths of records that the log names, by place: where the header of a segment is lost, the scan does not
// know what lengths are multiples of.
func (r *run) loggedLengths(doomed map[loc.Loc]bool) map[loc.Loc]int64 {
	out := map[loc.Loc]int64{}
	for _, locs := range []map[loc.Loc]bool{doomed, r.named.Dead} {
		for l := range locs {
			out[loc.Loc{Segment: l.Segment, Offset: l.Offset}] = l.Length
		}
	}
	for l := range r.named.Put {
		out[loc.Loc{Segment: l.Segment, Offset: l.Offset}] = l.Length
	}
	return out
}

// unwanted reports whether a record was never acknowledged, or a power cut tore it. Where the log is damaged, a frame that is lost may have
// named it; and what a barrier covers is damaged, if it is not whole.
func (r *run) unwanted(at loc.Loc, rec *segments.Record) bool {
	if !r.Log.Young(at) || r.Log.Damaged() {
		return false
	}
	lsn, named := r.named.Put[at]
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
		switch op := f.Op.(type) {
		case oplog.Snapshot:
			add(op.Models...)
		case oplog.Model:
			add(op)
		}
	}
	return out
}

// doom is for what the recovery itself finds to be dead.
func (r *run) doom(l index.Loc) {
	r.Found[l] = true
	r.Catalog.BuryAt(l)
}

// entryOf makes an index entry from a record alone, if the descriptor of its model is known.
func (r *run) entryOf(at loc.Loc, rec *segments.Record) (entry index.Entry, ok bool) {
	entry = index.Entry{
		Key: rec.Key(), Group: rec.Group(), Parent: rec.Parent(), Model: rec.Model(), Scope: rec.Scope(), Loc: at,
		First: rec.First(), Tokens: uint16(rec.TokenCount()), RowCount: uint16(rec.TokenCount()), Seq: rec.Seq(), Created: rec.Created(),
	}
	d, ok := r.fromScan[rec.Model()]
	if !ok {
		d, ok = r.fromLog[rec.Model()]
	}
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

// dropOrphans removes, after a rebuild, every block whose prefix is not stored, and every group whose block is not, and
// marks where scopes begin.
func (r *run) dropOrphans() error {
	return r.Index.Update(func(t *index.Txn) error {
		var all []index.Entry
		if err := t.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			all = append(all, x)
			return true
		}); err != nil {
			return err
		}
		// Parents first: a block is decided when its parent is.
		slices.SortFunc(all, func(a, b index.Entry) int {
			if a.Group == 0 != (b.Group == 0) {
				return int(a.Group) - int(b.Group)
			}
			return int(int64(a.First) - int64(b.First))
		})
		for _, x := range all {
			need, hangs := Needs(&x)
			parent, ok, err := t.Get(need.Key, need.Group)
			if err != nil {
				return err
			}
			switch {
			case !hangs:
				ok = true
			case x.Group == 0 && ok:
				ok = parent.Model == x.Model && parent.First+uint32(parent.Tokens) == x.First
			}
			if !ok {
				r.Left = append(r.Left, x)
				if err := r.drop(t, x); err != nil {
					return err
				}
				continue
			}
			if x.Group == 0 && !x.Scope.IsShared() && (x.First == 0 || parent.Scope != x.Scope) {
				x.Flags |= index.FlagScopeRoot
				if err := t.Put(x); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// dropUnnamed dooms, after a rebuild, every scanned record that the index does not name: older copies, and what was
// written but never acknowledged.
func (r *run) dropUnnamed() error {
	v := r.Index.View()
	defer v.Release()
	named := map[loc.Loc]bool{}
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		named[x.Loc] = true
		return true
	}); err != nil {
		return err
	}
	var unnamed []loc.Loc
	for l := range r.scanned {
		if !named[l] {
			unnamed = append(unnamed, l)
		}
	}
	r.Catalog.BuryAt(unnamed...)
	return nil
}
