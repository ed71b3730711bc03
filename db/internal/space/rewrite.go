package space

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// ErrNotMoved says that something that lives could not be moved out of a segment that is to go.
var ErrNotMoved = errors.New("not all that lives could be moved")

// deadSegments returns the finished segments by how many bytes they occupy beyond what is alive in them, where that is
// worth moving the rest, and how much of that no open match keeps. Where pages are punched there are none.
func (sp *Space) deadSegments() (dead map[uint64]int64, total int64) {
	dead = map[uint64]int64{}
	v := sp.Ledger.View()
	defer v.Release()
	for _, s := range sp.Ledger.Segments.Segments() {
		n := s.Allocated - v.Segment(s.ID).Bytes - min(sp.SegmentBytes, usualSegment)/16 // header, the last page
		if !s.Active && n > s.Allocated/4 {
			dead[s.ID] = n
			total += n
		}
	}
	return dead, max(0, total-sp.Ledger.Segments.Held())
}

// rewriteDead gives the space of evicted records back where their pages cannot be punched: it moves what is alive out of the
// deadest segments, one after the other, until so many bytes came back or no segment is worth it. The caller holds no lock.
func (sp *Space) rewriteDead(ctx context.Context, want int64) (freed int64, err error) {
	var out Compacted
	broken := map[uint64]bool{} // out of these nothing can be moved
	for freed < want {
		if _, kept := sp.Ledger.Segments.Kept(); sp.Ledger.Segments.Held() > kept { // what comes back soon is about to be punched
			break
		}
		dead, _ := sp.deadSegments()
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
		pace := sp.Workers.PutPace() // a put waits for it
		err := sp.rewrite(ctx, func(s segments.Info, _ int64) bool { return s.ID == victim }, nil, &pace, &out)
		if errors.Is(err, vfs.ErrNoSpace) {
			return freed, nil // evicting is the way out
		}
		if errors.Is(err, ErrNotMoved) {
			broken[victim] = true
			continue
		}
		before := sp.Budget.Measure()
		for range 2 { // one makes the moves durable and destroys the old places, the next finds the segment empty
			if err == nil || errors.Is(err, checkpoint.ErrNotDestroyed) {
				err = sp.Checkpoint(ctx)
			}
		}
		if errors.Is(err, checkpoint.ErrNotDestroyed) {
			err = nil
		}
		if err != nil {
			return freed, err
		}
		back := before - sp.Budget.Measure()
		freed += back
		if back <= 0 && out.Bytes == moved {
			break // its records do not move: damage, or a lease that came since
		}
	}
	if out.Segments > 0 {
		sp.Ledger.Logger.Debug("half-dead segments rewritten", "dir", sp.Ledger.Dir, "segments", out.Segments, "moved_bytes", out.Bytes, "freed_bytes", freed)
	}
	return freed, nil
}

// rewrite moves the live records out of the segments that are worth it. One that cannot be read to its end does not keep it from
// the others: it returns [ErrNotMoved] in the end.
func (sp *Space) rewrite(ctx context.Context, worth func(s segments.Info, live int64) bool, progress func(tally.Progress), pace *read.Pace, out *Compacted) error {
	victims := map[uint64]bool{}
	var total int64
	v := sp.Ledger.View()
	for _, s := range sp.Ledger.Segments.Segments() {
		live := v.Segment(s.ID)
		if !s.Active && live.Records > 0 && worth(s, live.Bytes) && sp.Ledger.Segments.Finish(s.ID) { // else it may take what is moved out of it
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
		moved, err := sp.move(ctx, x)
		pace.Rest()
		if err != nil {
			if ctx.Err() != nil || sp.Ledger.Poisoned() != nil || commit.IsIndexDamage(err) || errors.Is(err, vfs.ErrNoSpace) {
				return err
			}
			sp.Ledger.Logger.Error("segment cannot be rewritten", "segment", x.Loc.Segment, "error", err)
			unmoved = fmt.Errorf("%w: %w", ErrNotMoved, err)
			delete(victims, x.Loc.Segment)
			out.Segments--
			continue
		}
		if moved {
			out.Records++
			out.Bytes += x.Loc.Length
			sp.Count.BytesMoved.Add(x.Loc.Length)
		}
		if progress != nil {
			progress(tally.Progress{What: "compact", Done: out.Bytes, Total: total})
		}
	}
	return unmoved
}

// move copies a record to its model's active segment. It counts only if the key is still at the old place.
func (sp *Space) move(ctx context.Context, x index.Entry) (bool, error) {
	n := x.Loc.Length
	sp.Budget.MeasureOnce()
	if !sp.Budget.ReserveMove(n) {
		// Room comes from the old places: destroy those first.
		if err := finished(sp.Checkpoint(ctx)); err != nil {
			return false, err
		}
		if !sp.Budget.ReserveMove(n) {
			return false, sp.Budget.Full(n, 0)
		}
	}
	l := sp.Ledger
	l.Gate.RLock()
	defer l.Gate.RUnlock()
	to, seq, err := sp.copy(x)
	sp.Budget.GiveUp(n, 0)
	if err != nil || to.Length == 0 {
		return false, err
	}
	lsn, err := sp.moved(x, to, seq)
	switch {
	case lsn == 0: // nothing names the copy
		l.Catalog.Bury([]oplog.Dead{{Key: x.Key, Group: x.Group, Loc: to, Unseen: true}}, false)
		return false, err
	case err != nil: // the log names one place and the index the other: both stay until the index is rebuilt
		return false, err
	}
	return true, nil
}

// copy copies the record of x, if that still lies where x says. A copy of length 0: it does not, or it is damaged.
func (sp *Space) copy(x index.Entry) (to index.Loc, seq uint64, err error) {
	l := sp.Ledger
	lease := l.Segments.AcquireShort() // the old place stays readable while it is copied
	defer lease.Release()
	v := l.View()
	cur, ok, err := v.Get(x.Key, x.Group)
	v.Release()
	if err != nil || !ok || cur.Loc != x.Loc { // of a retired model a copy would begin a segment, and another may have its fingerprint
		return index.Loc{}, 0, err
	}
	seq = l.Seq.Add(1)
	to, err = l.Segments.Copy(x.Loc, seq)
	if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, segments.ErrDestroyed) {
		l.Logger.Error("record cannot be moved", "block", x.Key.String(), "error", err)
		return index.Loc{}, 0, nil
	}
	if err != nil {
		return index.Loc{}, 0, err
	}
	l.Growth.Add(to.Length)
	return to, seq, nil
}

// moved has the index name the copy of x. An lsn of 0: it does not name it, since the record was deleted, replaced or moved meanwhile.
func (sp *Space) moved(x index.Entry, to index.Loc, seq uint64) (lsn uint64, err error) {
	c, err := sp.Ledger.Begin()
	if err != nil {
		return 0, err
	}
	defer c.End()
	cur, ok, err := c.Index.Get(x.Key, x.Group)
	if err != nil || !ok || cur.Loc != x.Loc {
		return 0, err
	}
	if err := c.Index.SetLoc(x.Key, x.Group, to, seq); err != nil {
		return 0, err
	}
	return c.Commit(oplog.Move{Key: x.Key, Group: x.Group, From: x.Loc, To: to, Seq: seq})
}
