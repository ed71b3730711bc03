package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// recovery brings the index and the small state to the end of the log.
type recovery struct {
	e       *engine
	rebuild bool // the index is built from segments and log alone
	changed bool // something was recovered that a checkpoint should keep

	applied   index.Applied
	frames    []wal.Frame
	replayed  wal.Recovered
	first     snapshot // head of the oldest log file: what was swept is what lies below its ends
	hasFirst  bool
	scanned   map[opLoc]bool // records that the scan found, in a rebuild
	scanBirth uint64         // the highest among them
	fromScan  map[kv.Fingerprint]kv.Descriptor
	spared    map[opLoc]bool // the log gave them up for records that a power cut took: they are still live
}

func (r *recovery) run(ctx context.Context) error {
	if err := r.readLog(); err != nil {
		return err
	}
	if err := r.openIndex(); err != nil {
		return err
	}
	if err := r.openBloom(); err != nil {
		return err
	}
	if r.rebuild {
		if err := r.scan(ctx); err != nil {
			return err
		}
	}
	r.numbers()
	if err := r.apply(); err != nil {
		return err
	}
	if r.rebuild {
		if err := r.dropOrphans(); err != nil {
			return err
		}
		if err := r.dropUnnamed(); err != nil {
			return err
		}
	}
	return r.sweep(ctx)
}

// readLog reads every frame into memory: there are never more than a few megabytes between two checkpoints.
func (r *recovery) readLog() error {
	var err error
	r.replayed, err = wal.Replay(r.e.walOptions(), func(f wal.Frame) error {
		f.Payload = bytes.Clone(f.Payload)
		r.frames = append(r.frames, f)
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range r.frames {
		if f.Kind != frameSnapshot {
			continue
		}
		if _, snap, err := decodeSnapshot(f.Payload); err == nil {
			r.first, r.hasFirst = snap, true
			break
		}
	}
	return nil
}

// openIndex opens index.db, or decides that it must be rebuilt: it is missing, damaged, another store's, or of another
// generation than the log.
func (r *recovery) openIndex() error {
	e := r.e
	doubt := func(why error) {
		r.rebuild = true
		e.doubts = append(e.doubts, why)
		e.log.Warn("index will be rebuilt", "dir", e.dir, "why", why)
	}
	if !r.rebuild {
		ix, err := index.Open(e.indexOptions())
		switch {
		case err == nil:
			e.ix, r.applied = ix, ix.Applied()
		case errors.Is(err, index.ErrMissing):
			r.rebuild = true
			if len(r.frames) > 0 || e.set.MaxID() > 0 {
				doubt(err)
			}
		case errors.Is(err, index.ErrForeign), errors.Is(err, ErrCorrupt), errors.Is(err, index.ErrDamaged):
			doubt(err)
		default:
			return err
		}
	}
	if e.ix != nil {
		if why := r.gap(); why != "" {
			doubt(errors.New(why))
			e.ix.Close()
			e.ix = nil
		}
	}
	if !r.rebuild {
		return nil
	}
	var err error
	extra := r.applied
	r.applied = index.Applied{LSN: 0, WALFile: extra.WALFile, Extra: extra.Extra, Clock: extra.Clock, NextBirth: extra.NextBirth, NextSegment: extra.NextSegment}
	if e.o.ReadOnly {
		e.ix = index.Memory()
		return nil
	}
	// The numbers of log frames may begin anew: an old filter must not be taken for one that covers them.
	if err := e.fs.Remove(e.path(bloomName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e.ix, err = index.Create(e.indexOptions())
	return err
}

// gap says why the index and the log do not fit together; empty if they do.
func (r *recovery) gap() string {
	if r.applied.WALFile == 0 && r.e.set.MaxID() > 0 && (!r.hasFirst || r.first.Next.NextSegment > 1) {
		return "it was never written, and the log does not go back to the first segment"
	}
	if len(r.replayed.Files) == 0 {
		if r.applied.LSN == 0 {
			return ""
		}
		return fmt.Sprintf("there is no log, and the index was written at frame %d", r.applied.LSN)
	}
	first := r.replayed.Files[0].FirstLSN
	switch {
	case len(r.replayed.Damage) > 0:
		return "the log is damaged"
	case first > r.applied.LSN+1:
		return fmt.Sprintf("it ends at frame %d, the log begins at %d", r.applied.LSN, first)
	case r.applied.LSN > r.replayed.LastLSN:
		return fmt.Sprintf("it has frame %d, the log ends at %d", r.applied.LSN, r.replayed.LastLSN)
	}
	return ""
}

// openBloom loads the Bloom filter, if it covers all that the log does not repeat.
func (r *recovery) openBloom() error {
	e := r.e
	if r.rebuild || len(r.replayed.Files) == 0 {
		return nil
	}
	b, lsn, err := index.ReadBloom(e.fs, e.path(bloomName), e.format.UUID)
	if errors.Is(err, index.ErrMissing) && r.applied.LSN == 0 && r.replayed.Files[0].FirstLSN <= 1 {
		e.bloom.Store(index.NewBloom(minBloomKeys, e.o.BloomFPR)) // the log holds all there ever was: replay fills it
		return nil
	}
	if err != nil {
		e.log.Info("Bloom filter will be rebuilt", "dir", e.dir, "why", err)
		return nil
	}
	if lsn+1 < r.replayed.Files[0].FirstLSN || lsn > r.replayed.LastLSN {
		e.log.Info("Bloom filter will be rebuilt", "dir", e.dir, "why", "it is of another generation than the log")
		return nil
	}
	e.bloomLSN = lsn
	e.bloom.Store(b)
	return nil
}

// scan enters every record that the segments hold. What is not live any more is sorted out by the log.
func (r *recovery) scan(ctx context.Context) error {
	e := r.e
	r.scanned = map[opLoc]bool{}
	r.fromScan = map[kv.Fingerprint]kv.Descriptor{}
	doomed := r.doomed()
	var total, done int64
	for _, s := range e.set.Segments() {
		total += s.Allocated
	}
	for _, s := range e.set.Segments() {
		if d, err := e.set.Descriptor(s.ID); err == nil {
			r.fromScan[d.Fingerprint()] = d
		} else if errors.Is(err, ErrCorrupt) || errors.Is(err, segments.ErrMissing) {
			e.log.Error("segment is damaged", "error", err)
			continue
		} else {
			return err // too many open files, say: what is not entered now would be unlinked as dead
		}
		var batch []index.Entry
		flush := func() error {
			err := e.ix.Update(func(t *index.Txn) error {
				for _, entry := range batch {
					old, ok, err := t.Get(entry.Key, entry.Group)
					if err != nil {
						return err
					}
					if ok && old.Birth > entry.Birth {
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
		_, err := e.set.Scan(ctx, s.ID, 0, func(loc segments.Loc, rec *segments.Record) error {
			if doomed[toOpLoc(indexLoc(loc))] {
				return nil // it may be younger than the copy that lives
			}
			if entry, ok := r.entryOf(loc, rec); ok {
				r.scanned[toOpLoc(indexLoc(loc))] = true
				r.scanBirth = max(r.scanBirth, entry.Birth)
				batch = append(batch, entry)
			}
			if len(batch) >= 1024 {
				return flush()
			}
			return nil
		}, func(d *damage.Error) {
			if !errors.Is(d, segments.ErrRemains) {
				e.log.Error("segment is damaged", "error", d)
			}
		})
		if err == nil {
			err = flush()
		}
		if err != nil {
			return err
		}
		if done += s.Allocated; e.o.Progress != nil {
			e.o.Progress(Progress{What: "scan segments", Done: done, Total: total})
		}
	}
	return nil
}

// doomed are the records whose destruction the heads of the log have on their lists: none of them comes back to life.
func (r *recovery) doomed() map[opLoc]bool {
	out := map[opLoc]bool{}
	add := func(head []byte) {
		if _, snap, err := decodeSnapshot(head); err == nil {
			for _, l := range snap.Doomed {
				out[l] = true
			}
		}
	}
	if len(r.applied.Extra) > 0 {
		add(r.applied.Extra)
	}
	for _, f := range r.frames {
		if f.Kind == frameSnapshot {
			add(f.Payload)
		}
	}
	return out
}

func (r *recovery) doom(l index.Loc) { r.e.doomLocs([]opLoc{toOpLoc(l)}) }

// doomLocs is doom for records whose key does not matter.
func (e *engine) doomLocs(locs []opLoc) {
	dead := make([]opDead, 0, len(locs))
	for _, l := range locs {
		dead = append(dead, opDead{Loc: l})
	}
	e.doom(dead, false)
}

// entryOf makes an index entry from a record alone.
func (r *recovery) entryOf(loc segments.Loc, rec *segments.Record) (index.Entry, bool) {
	d, ok := r.fromScan[rec.Model()]
	if !ok || int(rec.Group()) >= len(d.Groups) {
		return index.Entry{}, false
	}
	entry := index.Entry{
		Key: rec.Key(), Group: rec.Group(), Parent: rec.Parent(), Model: rec.Model(), Scope: rec.Scope(), Loc: indexLoc(loc),
		First: rec.First(), Tokens: uint16(rec.TokenCount()), RowCount: uint16(rec.TokenCount()), Birth: rec.Birth(),
	}
	if rec.Tensors() > 0 && d.Groups[rec.Group()].Kind == kv.Window {
		te := rec.Tensor(0)
		entry.RowFirst, entry.RowCount = te.FirstRow, te.Rows
	}
	if rec.Group() == 0 {
		p := rec.Prompt()
		entry.Hashes = r.e.hasher.AppendTokenHashes(nil, &p, 0, len(p.Tokens))
		entry.Rank = r.e.o.Policy.Rank(Leaf{
			Clock: entry.Birth, Birth: entry.Birth, Start: int(entry.First), End: int(entry.First) + int(entry.Tokens), Bytes: loc.Length,
		}) & rankMask
		if entry.Tokens < uint16(d.BlockTokens) {
			entry.Flags |= index.FlagTail
		}
	}
	return entry, true
}

// dropOrphans removes, after a rebuild, every block whose prefix is not stored, and every group whose block is not, and
// marks where scopes begin.
func (r *recovery) dropOrphans() error {
	e := r.e
	return e.ix.Update(func(t *index.Txn) error {
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
			need := x.Parent
			if x.Group > 0 {
				need = x.Key
			}
			parent, ok, err := t.Get(need, 0)
			if err != nil {
				return err
			}
			switch {
			case x.Group == 0 && x.First == 0:
				ok = true
			case x.Group == 0 && ok:
				ok = parent.Model == x.Model && parent.First+uint32(parent.Tokens) == x.First
			}
			if !ok {
				r.doom(x.Loc)
				if err := t.Remove(x.Key, x.Group); err != nil {
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
func (r *recovery) dropUnnamed() error {
	v := r.e.view()
	defer v.Release()
	named := map[opLoc]bool{}
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		named[toOpLoc(x.Loc)] = true
		return true
	}); err != nil {
		return err
	}
	var unnamed []opLoc
	for l := range r.scanned {
		if !named[l] {
			unnamed = append(unnamed, l)
		}
	}
	r.e.doomLocs(unnamed)
	return nil
}

// sweep dooms records that were written but never named by a frame, in the segments that were being written to when the
// store was last open.
func (r *recovery) sweep(ctx context.Context) error {
	e := r.e
	if e.o.ReadOnly {
		return nil
	}
	v := e.view()
	defer v.Release()
	for _, s := range e.set.Segments() {
		from, open := r.first.Ends[s.ID]
		if r.hasFirst && !open && s.ID < r.first.Next.NextSegment {
			continue // finished, and everything in it named, before the oldest log file began
		}
		var unnamed []opLoc
		end, err := e.set.Scan(ctx, s.ID, from, func(loc segments.Loc, rec *segments.Record) error {
			entry, ok, err := v.Get(rec.Key(), rec.Group())
			if err == nil && (!ok || segLoc(entry.Loc) != loc) {
				unnamed = append(unnamed, toOpLoc(indexLoc(loc)))
			}
			return err
		}, func(d *damage.Error) {
			if !errors.Is(d, segments.ErrRemains) {
				e.log.Warn("segment is damaged", "error", d)
			}
		})
		if errors.Is(err, ErrCorrupt) || errors.Is(err, segments.ErrMissing) {
			e.log.Error("segment cannot be read", "error", err)
			continue
		}
		if err != nil {
			return err
		}
		e.doomLocs(unnamed)
		e.unsealed = append(e.unsealed, unsealed{s.ID, end})
	}
	return nil
}

// numbers makes sure that none is given twice.
func (r *recovery) numbers() {
	e := r.e
	next := func(a, b uint64) uint64 { return max(a, b) }
	birth := next(r.applied.NextBirth, r.first.Next.NextBirth)
	clock := next(r.applied.Clock, r.first.Next.Clock)
	for _, f := range r.frames {
		switch f.Kind {
		case frameSnapshot:
			if _, snap, err := decodeSnapshot(f.Payload); err == nil {
				birth, clock = next(birth, snap.Next.NextBirth), next(clock, snap.Next.Clock)
				if snap.Next.NextSegment > 0 {
					e.set.RaiseID(snap.Next.NextSegment - 1)
				}
			}
		case framePut:
			if op, err := decodeOp[opPut](f); err == nil {
				for _, x := range op.Records {
					birth = next(birth, x.Birth+1)
					e.set.RaiseID(x.Loc.Segment)
				}
			}
		case frameMove:
			if op, err := decodeOp[opMove](f); err == nil {
				birth = next(birth, op.Birth+1)
				e.set.RaiseID(op.To.Segment)
			}
		}
	}
	if r.applied.NextSegment > 0 {
		e.set.RaiseID(r.applied.NextSegment - 1)
	}
	birth = next(birth, r.scanBirth+1)
	e.birth.Store(max(birth, 1) - 1)
	e.clock.Store(max(clock, birth))
}
