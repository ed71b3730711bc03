package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// deadSegments returns the finished segments by how many bytes they occupy beyond what is alive in them, where that is
// worth moving the rest, and how much of that no open match keeps. Where pages are punched there are none.
func (e *Engine) deadSegments() (dead map[uint64]int64, total int64) {
	dead = map[uint64]int64{}
	v := e.View()
	defer v.Release()
	for _, s := range e.Segments.Segments() {
		n := s.Allocated - v.Segment(s.ID).Bytes - min(e.o.SegmentBytes, usualSegment)/16 // header, the last page
		if !s.Active && n > s.Allocated/4 {
			dead[s.ID] = n
			total += n
		}
	}
	return dead, max(0, total-e.held())
}

// rewriteDead gives the space of evicted records back where their pages cannot be punched: it moves what is alive out of the
// deadest segments, one after the other, until so many bytes came back or no segment is worth it. The caller holds no lock.
func (e *Engine) rewriteDead(ctx context.Context, want int64) (freed int64, err error) {
	var out Compacted
	broken := map[uint64]bool{} // out of these nothing can be moved
	for freed < want {
		if _, kept := e.Segments.Kept(); e.held() > kept { // what comes back soon is about to be punched
			break
		}
		dead, _ := e.deadSegments()
		var victim uint64
		for id, n := range dead {
			if n > dead[victim] && !broken[id] {
				victim = id
			}
		}
		if victim == 0 {
			break
		}
		moved := out.Bytes
		pace := e.workers.PutPace() // a put waits for it
		err := e.rewrite(ctx, func(s segments.Info, _ int64) bool { return s.ID == victim }, nil, &pace, &out)
		if errors.Is(err, vfs.ErrNoSpace) {
			return freed, nil // evicting is the way out
		}
		if errors.Is(err, ErrNotMoved) {
			broken[victim] = true
			continue
		}
		before := e.Measure()
		for range 2 { // one makes the moves durable and destroys the old places, the next finds the segment empty
			if err == nil || errors.Is(err, ErrNotDestroyed) {
				err = e.Checkpoint(ctx)
			}
		}
		if errors.Is(err, ErrNotDestroyed) {
			err = nil
		}
		if err != nil {
			return freed, err
		}
		back := before - e.Measure()
		freed += back
		if back <= 0 && out.Bytes == moved {
			break // its records do not move: damage, or a lease that came since
		}
	}
	if out.Segments > 0 {
		e.log.Debug("half-dead segments rewritten", "dir", e.Dir, "segments", out.Segments, "moved_bytes", out.Bytes, "freed_bytes", freed)
	}
	return freed, nil
}

// rewrite moves the live records out of the segments that are worth it. One that cannot be read to its end does not keep it from
// the others: it returns [ErrNotMoved] in the end.
func (e *Engine) rewrite(ctx context.Context, worth func(s segments.Info, live int64) bool, progress func(Progress), pace *read.Pace, out *Compacted) error {
	victims := map[uint64]bool{}
	var total int64
	v := e.View()
	for _, s := range e.Segments.Segments() {
		live := v.Segment(s.ID)
		if !s.Active && live.Records > 0 && worth(s, live.Bytes) && e.Segments.Finish(s.ID) { // else it may take what is moved out of it
			victims[s.ID] = true
			total += live.Bytes
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
	out.Segments += len(victims)
	var unmoved error
	for _, x := range moves {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !victims[x.Loc.Segment] {
			continue
		}
		moved, err := e.move(ctx, x)
		pace.Rest()
		if err != nil {
			if ctx.Err() != nil || e.Poisoned() != nil || IsIndexDamage(err) || errors.Is(err, vfs.ErrNoSpace) {
				return err
			}
			e.log.Error("segment cannot be rewritten", "segment", x.Loc.Segment, "error", err)
			unmoved = fmt.Errorf("%w: %w", ErrNotMoved, err)
			delete(victims, x.Loc.Segment)
			out.Segments--
			continue
		}
		if moved {
			out.Records++
			out.Bytes += x.Loc.Length
			e.Count.BytesMoved.Add(x.Loc.Length)
		}
		if progress != nil {
			progress(Progress{What: "compact", Done: out.Bytes, Total: total})
		}
	}
	return unmoved
}

// move copies a record to its model's active segment. It counts only if the key is still at the old place.
func (e *Engine) move(ctx context.Context, x index.Entry) (bool, error) {
	n := x.Loc.Length
	e.measureOnce()
	room := func() bool {
		leave := e.moveReserve()
		return e.diskHas(n, max(e.o.MinFree, leave)) && e.space.reserve(n, e.o.Budget-leave)
	}
	if !room() {
		// Room comes from the old places: destroy those first.
		if err := e.Checkpoint(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
			return false, err
		}
		if !room() {
			return false, e.full(n, 0)
		}
	}
	e.publishGate.RLock()
	defer e.publishGate.RUnlock()
	lease := e.Segments.AcquireShort() // the old place stays readable while it is copied
	defer lease.Release()
	v := e.View()
	cur, ok, err := v.Get(x.Key, x.Group)
	v.Release()
	if err != nil || !ok || cur.Loc != x.Loc { // of a retired model a copy would begin a segment, and another may have its fingerprint
		e.space.giveUp(n, 0)
		return false, err
	}
	seq := e.seq.Add(1)
	to, err := e.Segments.Copy(x.Loc, seq)
	if err != nil {
		e.space.giveUp(n, 0)
		if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, segments.ErrDestroyed) {
			e.log.Error("record cannot be moved", "block", x.Key.String(), "error", err)
			return false, nil
		}
		return false, err
	}
	e.growth.Add(to.Length)
	e.space.giveUp(n, 0)
	op := oplog.Move{Key: x.Key, Group: x.Group, From: x.Loc, To: to, Seq: seq}
	lsn, err := e.Commit(func(t *index.Txn) (oplog.Op, error) {
		cur, ok, err := t.Get(x.Key, x.Group)
		if err != nil || !ok || cur.Loc != x.Loc {
			return nil, err
		}
		return op, t.SetLoc(x.Key, x.Group, to, seq)
	}, nil)
	if err != nil && lsn != 0 {
		return false, err // the log names one place and the index the other: both stay until the index is rebuilt
	}
	dead := oplog.Dead{Key: x.Key, Group: x.Group, Loc: op.From}
	if lsn == 0 {
		dead.Loc, dead.Unseen = op.To, true
	}
	e.Catalog.Bury([]oplog.Dead{dead}, lsn != 0)
	return lsn != 0, err
}
