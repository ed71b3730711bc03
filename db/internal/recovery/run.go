package recovery

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
)

// Run recovers a store. The error is a damage.Error with file and offset where the log cannot be done without, vfs.ErrVersion where another
// release wrote it, ErrDamaged of package index where index.db turned out to be damaged on the way: then Run with that as Doubt builds it
// anew.
func Run(ctx context.Context, in Input) (Result, error) {
	r := newRun(in)
	err := r.run(ctx)
	return r.Result, err
}

func (r *run) run(ctx context.Context) (err error) {
	// Nothing is changed before all frames of the log make sense.
	if r.Log, err = ReadLog(r.LogOptions); err != nil {
		return err
	}
	if r.Salvage {
		r.Log.salvage()
	}
	for _, f := range r.Log.Frames {
		if f.Err != nil {
			return f.Err
		}
	}
	if err := r.openIndex(); err != nil {
		return err
	}
	// A rebuild first enters all that the segments hold. The log sorts out what does not live any more.
	if r.Rebuilt {
		if err := r.enterSegments(ctx); err != nil {
			return err
		}
	}
	r.numbers()
	// The log is replayed as if no power cut had taken anything. What one took is undone afterwards.
	if err := r.adoptCopy(); err != nil {
		return err
	}
	if err := r.Index.Update(r.replayLog); err != nil {
		return err
	}
	r.registerScanned()
	r.Catalog.DropStrayNotes()
	if r.Rebuilt {
		if err := r.dropOrphans(); err != nil {
			return err
		}
		if err := r.dropUnnamed(); err != nil {
			return err
		}
	}
	return r.sweep(ctx)
}

// adoptCopy begins with the index's copy of the log's head, where the head itself is lost.
func (r *run) adoptCopy() error {
	if r.Log.HasFirst || len(r.Applied.Extra) == 0 {
		return nil
	}
	if err := r.headOfAnotherRelease(); err != nil {
		return err
	}
	if head, err := ReadHead(r.Applied.Extra); err == nil {
		r.Adopt(&head, catalog.Place{File: r.IndexOptions.Path})
	}
	return nil
}

// replayLog brings the index from its own last frame, and the catalog, to the end of the log.
func (r *run) replayLog(t *index.Txn) error {
	for _, f := range r.Log.Frames {
		if err := r.frame(t, f); err != nil {
			return err
		}
	}
	if err := r.dropLost(t); err != nil {
		return err
	}
	if r.Rebuilt {
		if err := r.removeDead(t); err != nil {
			return err
		}
		if err := r.enterPartial(t); err != nil {
			return err
		}
		for _, k := range r.Catalog.Named() {
			r.ranks.block(k)
		}
	}
	return r.ranks.settle(t, r.Catalog)
}

// registerScanned registers the models that only the segments know, unless they were retired.
func (r *run) registerScanned() {
	for fp, d := range r.scan.models {
		if r.Catalog.Model(fp) == nil && !r.Retired(r.Segments, fp) {
			r.Catalog.Apply(oplog.NewModel(&d, 0), catalog.Place{})
		}
	}
}

// numbers sees to it that no number is given twice.
func (r *run) numbers() {
	next := r.Log.First.Next.Max(oplog.Counters{Seq: r.Applied.NextSeq, Segment: r.Applied.NextSegment, Clock: r.Applied.Clock})
	for _, f := range r.Log.Frames {
		if f.Op != nil {
			next = next.Max(f.Op.Numbers())
		}
	}
	if next.Segment > 0 {
		r.Segments.RaiseID(next.Segment - 1)
	}
	seq := max(next.Seq, r.scan.seq+1)
	r.Seq, r.Clock = max(seq, 1)-1, max(next.Clock, seq)
}
