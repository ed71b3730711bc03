package db

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// CompactOptions say what is worth rewriting.
type CompactOptions struct {
	// LiveShare is the share of live bytes under which a segment is rewritten. 0: one half. 1: every segment that is
	// not wholly alive.
	LiveShare float64
	Progress  func(Progress)
}

// Compacted says what a compaction did.
type Compacted struct {
	Segments      int   // rewritten
	Records       int   // moved
	Bytes         int64 // moved
	Before, After int64 // allocated bytes of all files
}

// Compact gives space back: it moves live records out of segments that are mostly dead, merges small segments, and
// rewrites index.db without its free pages. Reads and puts go on meanwhile. Cancelled, it leaves what is done.
func (s *Store) Compact(ctx context.Context, o CompactOptions) (Compacted, error) {
	e, err := s.enter()
	if err != nil {
		return Compacted{}, err
	}
	defer s.leave()
	if err := e.poisoned(); err != nil {
		return Compacted{}, err
	}
	if o.LiveShare == 0 {
		o.LiveShare = 0.5
	}
	out := Compacted{Before: e.measure()}
	if err := e.checkpoint(ctx); err != nil {
		return out, err
	}
	err = e.rewrite(ctx, o, &out)
	// One checkpoint makes the moves durable and destroys the old places; the next finds the segments empty.
	for range 2 {
		err = errors.Join(err, e.checkpoint(ctx))
	}
	err = errors.Join(err, e.compactIndex(ctx))
	out.After = e.measure()
	return out, err
}

// compactIndex rewrites index.db without its free pages.
func (e *engine) compactIndex(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.ix.Compact()
}

// rewrite moves the live records out of the segments that are worth it.
func (e *engine) rewrite(ctx context.Context, o CompactOptions, out *Compacted) error {
	victims := map[uint64]bool{}
	var total int64
	v := e.view()
	for _, s := range e.set.Segments() {
		live := v.Segment(s.ID)
		if s.Active || live.Records == 0 {
			continue
		}
		if float64(live.Bytes) < o.LiveShare*float64(s.Size) || s.Size < e.o.SegmentBytes/4 {
			victims[s.ID] = true
			total += live.Bytes
		}
	}
	if len(victims) == 1 {
		for id := range victims { // a single small segment would only be copied
			for _, s := range e.set.Segments() {
				if s.ID == id && float64(v.Segment(id).Bytes) >= o.LiveShare*float64(s.Size) {
					delete(victims, id)
				}
			}
		}
	}
	var moves []index.Entry
	err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if victims[x.Loc.Segment] {
			moves = append(moves, x)
		}
		return true
	})
	v.Release()
	if err != nil {
		return err
	}
	out.Segments = len(victims)
	for _, x := range moves {
		if err := ctx.Err(); err != nil {
			return err
		}
		moved, err := e.move(ctx, x)
		if err != nil {
			return err
		}
		if moved {
			out.Records++
			out.Bytes += x.Loc.Length
			e.count.bytesMoved.Add(x.Loc.Length)
		}
		if o.Progress != nil {
			o.Progress(Progress{What: "compact", Done: out.Bytes, Total: total})
		}
	}
	return nil
}

// move copies a record to its model's active segment. It counts only if the key is still at the old place.
func (e *engine) move(ctx context.Context, x index.Entry) (bool, error) {
	if e.used.Load()+x.Loc.Length > e.o.Budget || !e.diskHas(x.Loc.Length) {
		// Room comes from the old places: destroy those first.
		if err := e.checkpoint(ctx); err != nil {
			return false, err
		}
		if e.used.Load()+x.Loc.Length > e.o.Budget || !e.diskHas(x.Loc.Length) {
			return false, e.full(x.Loc.Length)
		}
	}
	lease := e.set.Acquire() // the old place stays readable while it is copied
	defer lease.Release()
	e.gate.RLock()
	defer e.gate.RUnlock()
	birth := e.birth.Add(1)
	to, err := e.set.Copy(segLoc(x.Loc), birth)
	if err != nil {
		if errors.Is(err, ErrCorrupt) || errors.Is(err, segments.ErrDestroyed) {
			e.log.Error("record cannot be moved", "block", x.Key.String(), "error", err)
			return false, nil
		}
		return false, err
	}
	e.growth.Add(to.Length)
	e.used.Add(to.Length)
	op := opMove{Key: x.Key, Group: x.Group, From: toOpLoc(x.Loc), To: toOpLoc(indexLoc(to)), Birth: birth}
	lsn, err := e.commit(frameMove, func(t *index.Txn) (any, error) {
		cur, ok, err := t.Get(x.Key, x.Group)
		if err != nil || !ok || cur.Loc != x.Loc {
			return nil, err
		}
		return op, t.SetLoc(x.Key, x.Group, indexLoc(to), birth)
	})
	if err != nil && lsn != 0 {
		return false, err // the log names one place and the index the other: both stay until the index is rebuilt
	}
	dead := opDead{Key: x.Key, Group: x.Group, Loc: op.From}
	if lsn == 0 {
		dead.Loc = op.To
	}
	e.doom([]opDead{dead}, lsn != 0)
	return lsn != 0, err
}
