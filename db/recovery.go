package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
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
	frames    []logFrame
	replayed  wal.Recovered
	first     oplog.Snapshot // head of the oldest log file: what was swept is what lies below its ends
	hasFirst  bool
	trouble   error                   // reads that failed for reasons of their own
	scanned   map[loc.Loc]bool        // records that the scan found, in a rebuild
	logged    map[loc.Loc]index.Entry // those of them that the log enters
	named     logNames                // the places that the log names, for a rebuild
	found     map[loc.Loc]bool        // dead, as the scan or the replay found out
	arrivals  map[loc.Loc]*arrival    // what the replay entered
	scanBirth uint64                  // the highest birth that the scan found
	fromScan  map[kv.Fingerprint]kv.Descriptor
	fromLog   map[kv.Fingerprint]kv.Descriptor
	listed    map[segments.Loc]bool // what the next log head must list as dead: what was taken out, and older copies of what stays
	unranked  map[kv.Key]struct{}   // blocks whose class may be another one now
	barrier   uint64                // segments and log had been durable up to this frame
	lsn       uint64                // of the frame that is being replayed
}

func (r *recovery) run(ctx context.Context) error {
	if err := r.readLog(); err != nil {
		return err
	}
	for _, f := range r.frames {
		if f.err != nil { // nothing is changed yet
			return f.err
		}
	}
	if err := r.openIndex(); err != nil {
		return err
	}
	r.e.planBloom(r)
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

// logFrame is a frame of the log, and what it says. Its payload is not kept.
type logFrame struct {
	wal.Frame
	op  oplog.Op
	err error // there is no op
}

// readLog reads every frame into memory: there are never more than a few megabytes between two checkpoints.
func (r *recovery) readLog() error {
	var err error
	r.replayed, err = wal.Replay(r.e.readOptions(), func(f wal.Frame) error {
		if f.Kind == oplog.KindSnapshot || f.Kind == oplog.KindModel {
			f.Payload = bytes.Clone(f.Payload) // models share it
		}
		op, err := readFrame(f)
		f.Payload = nil
		r.frames = append(r.frames, logFrame{f, op, err})
		return nil
	})
	if errors.Is(err, wal.ErrVersion) {
		return ofAnotherRelease(err)
	}
	if err != nil {
		return err
	}
	for _, f := range r.frames {
		switch op := f.op.(type) {
		case oplog.Snapshot:
			if !r.hasFirst {
				r.first, r.hasFirst = op, true
			}
		case oplog.Barrier:
			r.barrier = max(r.barrier, op.LSN)
		}
	}
	return nil
}

// readFrame decodes a frame. The checksum of its bytes is right: an error says that another release wrote it, or another program.
func readFrame(f wal.Frame) (oplog.Op, error) {
	op, err := oplog.Decode(f.Kind, f.Payload)
	switch {
	case errors.Is(err, ErrVersion):
		return nil, ofAnotherRelease(fmt.Errorf("%s: log frame %d of kind %d at offset %d: %w", f.File, f.LSN, f.Kind, f.Offset, err))
	case err != nil:
		return nil, &CorruptError{File: f.File, Offset: f.Offset, What: fmt.Sprintf("log frame %d of kind %d", f.LSN, f.Kind), Err: err}
	}
	return op, nil
}

// readHead decodes a copy of a log head.
func readHead(b []byte) (head oplog.Snapshot, err error) {
	op, err := oplog.Decode(oplog.KindSnapshot, b)
	if err == nil {
		head = op.(oplog.Snapshot)
	}
	return head, err
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
		case errors.Is(err, index.ErrForeign) && !e.o.ReadOnly:
			return err // another store's, or another program's: not ours to replace
		case errors.Is(err, index.ErrForeign), errors.Is(err, index.ErrVersion), errors.Is(err, ErrCorrupt), errors.Is(err, index.ErrDamaged), errors.Is(err, vfs.ErrNotRegular):
			doubt(err)
		default:
			return err
		}
	}
	if e.ix != nil {
		if why := r.gap(); why != nil {
			doubt(why)
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
	if err := e.fs.Remove(e.path(bloomName)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrNotRegular) {
		return err
	}
	// Should this rebuild not come to its end, the next one needs what only the old index knew: refs, and what was deleted and
	// is not yet destroyed. No log file is named: an index that was never written is rebuilt.
	left := r.applied
	left.WALFile = 0
	// FORMAT first: an earlier process may not have come to sync its name, and an index beside none is somebody else's.
	if err := e.fs.SyncDir(e.dir); err != nil {
		return err
	}
	e.ix, err = index.CreateWith(e.indexOptions(), left)
	return err
}

// gap says why the index and the log do not fit together; nil if they do. A log that is not there at all is damage, since no
// checkpoint takes its last file: what was said after the checkpoint, deletions too, is lost.
func (r *recovery) gap() error {
	if r.applied.WALFile == 0 && r.e.set.MaxID() > 0 && (!r.hasFirst || r.first.Next.Segment > 1) {
		return errors.New("it was never written, and the log does not go back to the first segment")
	}
	if len(r.replayed.Files) == 0 {
		if r.applied.LSN == 0 {
			return nil
		}
		return damage.New(r.e.path(walDir), 0, "log", fmt.Sprintf("files that go on behind frame %d, as the index does", r.applied.LSN), "none")
	}
	first := r.replayed.Files[0].FirstLSN
	switch {
	case len(r.replayed.Damage) > 0:
		return fmt.Errorf("the log is damaged: %v", r.replayed.Damage[0]) // of which Verify reports each
	case first > r.applied.LSN+1:
		return fmt.Errorf("it ends at frame %d, the log begins at %d", r.applied.LSN, first)
	case r.applied.LSN > r.replayed.LastLSN:
		return fmt.Errorf("it has frame %d, the log ends at %d", r.applied.LSN, r.replayed.LastLSN)
	}
	return nil
}

// sweep dooms records that were written but never named by a frame, in the segments that were being written to when the
// store was last open.
func (r *recovery) sweep(ctx context.Context) error {
	e := r.e
	v := e.view()
	defer v.Release()
	for _, id := range e.set.Finished() {
		from, open := r.first.Ends[id]
		done := r.hasFirst && !open && id < r.first.Next.Segment
		if !done || len(r.replayed.Damage) > 0 {
			e.set.Left(id) // before anything that rests on its records is acknowledged
		}
		if done {
			continue // finished, and everything in it named, before the oldest log file began
		}
		u, err := e.sweepSegment(ctx, v, id, from)
		if errors.Is(err, ErrCorrupt) || errors.Is(err, segments.ErrMissing) {
			e.log.Error("segment cannot be read", "error", err)
			continue
		}
		if err != nil {
			return err
		}
		e.unsealed = append(e.unsealed, u)
	}
	return nil
}

// numbers makes sure that none is given twice.
func (r *recovery) numbers() {
	e := r.e
	next := func(a, b uint64) uint64 { return max(a, b) }
	birth := next(r.applied.NextBirth, r.first.Next.Seq)
	clock := next(r.applied.Clock, r.first.Next.Clock)
	for _, f := range r.frames {
		switch op := f.op.(type) {
		case oplog.Snapshot:
			birth, clock = next(birth, op.Next.Seq), next(clock, op.Next.Clock)
			if op.Next.Segment > 0 {
				e.set.RaiseID(op.Next.Segment - 1)
			}
		case oplog.Put:
			for _, x := range op.Records {
				birth = next(birth, x.Seq+1)
				e.set.RaiseID(x.Loc.Segment)
			}
		case oplog.Model:
			clock = next(clock, op.Stamp) // uses before it made the clock go on, and are in no frame
		case oplog.Retire: // a segment in which nothing was ever named is unlinked by its number, too
			for _, id := range op.Segments {
				e.set.RaiseID(id)
			}
		case oplog.Move:
			birth = next(birth, op.Seq+1)
			e.set.RaiseID(op.To.Segment)
		}
	}
	if r.applied.NextSegment > 0 {
		e.set.RaiseID(r.applied.NextSegment - 1)
	}
	birth = next(birth, r.scanBirth+1)
	e.birth.Store(max(birth, 1) - 1)
	e.clock.Store(max(clock, birth))
}
