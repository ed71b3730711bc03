package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// checkpointing is a checkpoint that has begun: what lies below its frame waits, frozen, to be written.
type checkpointing struct {
	applied index.Applied
	empty   []uint64 // segments in which nothing lived when it began
	// bloom is the filter of that time, nil for none: one that is built later does not know what was removed since, and a power
	// cut can take the frames that say so.
	bloom   *index.Bloom
	indexed bool // index.db has it
	// growth and stateGrowth are the engine's at that time: what comes while it is written is for the next one.
	growth, stateGrowth int64
}

// Checkpoint makes everything durable that was acknowledged so far, moves it from the log to the index, and removes the log files that are
// no longer needed.
func (e *Engine) Checkpoint(ctx context.Context) error {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.checkpointLocked(ctx)
}

func (e *Engine) checkpointLocked(ctx context.Context) error {
	if err := e.Poisoned(); err != nil {
		return err
	}
	start := time.Now()
	rest := e.restBetween()
	e.makeUp(ctx)

	// One that failed comes first. While that goes on failing, each try must not make another log file.
	if c := e.begun; c != nil {
		if err := e.writeCheckpoint(ctx, c, rest); err != nil && !e.worthRotating(c) {
			e.dirty.Store(true)
			return err
		}
	}
	e.bloomLoad.wait() // else this one has no filter to write
	c, err := e.freeze()
	if err != nil {
		return err
	}
	e.begun = c
	rest()
	e.SyncSessions() // one that refuses writes says so itself, and is no reason for a log that grows for ever; what follows sees a failed fsync
	rest()
	if err := e.writeCheckpoint(ctx, c, rest); err != nil {
		e.dirty.Store(true) // the frozen part still waits
		return err
	}
	e.growth.Add(-c.growth)
	e.stateGrowth.Add(-c.stateGrowth)
	e.Count.Checkpoints.Add(1)
	e.Count.CheckpointNanos.Store(int64(time.Since(start)))
	rest()
	return e.reclaimRest(ctx)
}

// restBetween returns what rests between two steps of a checkpoint, each of which syncs files, while restores are at work and nobody waits for
// ckptMu. Without it one restore has all of them beside it, and every sync keeps a processor for a while. The caller holds ckptMu.
func (e *Engine) restBetween() func() {
	pace := e.workers.PutPace()
	return func() {
		if e.ckptMu.waiting.Load() == 0 {
			pace.Rest()
		}
	}
}

// worthRotating reports whether the log should go on in a new file although c failed again: on a full disk, that may have the
// only room for what makes some; and if just the old files cannot be removed, the index need not fall behind for that.
func (e *Engine) worthRotating(c *checkpointing) bool {
	used, ahead := e.wal.Room()
	least := e.LogOptions().PreallocBytes / 2
	return ahead < least || c.indexed && used >= least
}

// writeCheckpoint does what is still to be done of a checkpoint that has begun, and calls rest between its steps. The caller holds ckptMu.
func (e *Engine) writeCheckpoint(ctx context.Context, c *checkpointing, rest func()) error {
	if err := e.sealLeftovers(ctx); err != nil {
		return err
	}
	if err := e.Segments.Sync(); err != nil {
		return err
	}
	e.checkpointed(c.applied.LSN)
	rest()
	if !c.indexed {
		if err := e.Index.Checkpoint(ctx, c.applied); err != nil {
			return err
		}
		c.indexed = true
		rest()
		if err := e.writeBloom(c); err != nil { // no reason for a log that grows for ever
			e.log.Warn("the Bloom filter's file could not be written: the next open may have to rebuild it", "dir", e.Dir, "error", err)
		}
	}
	rest()
	e.Measure() // the log still has its old files: this is the most
	if err := e.wal.Remove(c.applied.WALFile); err != nil {
		return err
	}
	e.Catalog.Unlink(false, c.empty...)
	e.begun = nil
	return nil
}

// freeze switches to a new log file whose head repeats the small state, and freezes the index at the last frame before
// it. While it holds the publish gate, no record is on its way from a segment to the index.
func (e *Engine) freeze() (*checkpointing, error) {
	e.publishGate.Lock()
	defer e.publishGate.Unlock()
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	if err := e.updateIndex(func(*index.Txn) error { return nil }); err != nil {
		return nil, err
	}
	e.forgetFlags()
	empty := e.emptySegments()
	ends := e.openEnds()
	var head []byte
	var a index.Applied
	var err error
	encode, _ := e.laterHead(ends)
	a.WALFile, a.LSN, err = e.wal.Rotate(func(lsn uint64) []byte {
		head = encode()
		return head
	})
	if err != nil {
		return nil, err
	}
	next := e.nextCounters()
	e.dirty.Store(false)
	a.NextSeq, a.NextSegment, a.Clock, a.Extra = next.Seq, next.Segment, next.Clock, head
	e.Index.Freeze()
	return &checkpointing{
		applied: a, empty: empty, bloom: e.bloom.Load(), growth: e.growth.Load(), stateGrowth: e.stateGrowth.Load(),
	}, nil
}

// laterHead is what the log's next file begins with, as of now, encoded when that is written: a process that only reads needs none. Encoding
// takes no lock.
// The caller holds the publish gate and commitMu.
func (e *Engine) laterHead(ends map[uint64]int64) (encode func() []byte, sizeBound int64) {
	return e.Catalog.Head(ends, e.nextCounters()), e.Catalog.HeadBound(len(ends))
}

// SyncAll makes all that was acknowledged durable, and destroys the bytes of what was deleted, refs included. What open matches can still see
// is left, and what lies where a Verify is at work.
func (e *Engine) SyncAll(ctx context.Context) (left Left, err error) {
	if err := e.Poisoned(); err != nil {
		return left, err
	}
	e.ckptMu.Lock()
	err = e.sealLeftovers(ctx) // behind their ends there may be what a power cut tore, of what was deleted since
	e.ckptMu.Unlock()
	if err != nil {
		return left, err
	}
	if err := e.Sync(); err != nil {
		return left, err
	}
	if left, err = e.reclaimAll(ctx); err != nil {
		return left, err
	}
	return left, e.scrubRefs(ctx)
}

// scrubRefs sees to it that no file holds what refs said that are gone, if something was deleted since: a log that begins with those that
// there are, and an index without free pages.
func (e *Engine) scrubRefs(ctx context.Context) error {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	due, formers := e.Catalog.FormerDeleted()
	if !due {
		return nil
	}
	goesOn, id := e.wal.Begun(), e.wal.FileID()
	if err := e.checkpointLocked(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
		return err
	}
	if goesOn && e.wal.FileID() == id {
		return fmt.Errorf("%w: what deleted refs said stays in the log until there is room for another file", vfs.ErrNoSpace)
	}
	if err := e.Index.Compact(); err != nil {
		return err
	}
	if e.Catalog.ForgetFormer(formers) {
		e.dirty.Store(true) // the head of the log says otherwise
	}
	return nil
}

// Sync makes durable what the segments and the log have, also what an earlier process left in them.
func (e *Engine) Sync() error {
	if e.wal == nil {
		return nil
	}
	if err := e.Poisoned(); err != nil {
		return err
	}
	if err := e.Segments.Sync(); err != nil { // what no frame is about, too: headers, cuts
		return err
	}
	return errors.Join(e.SyncSessions(), e.allDurable())
}

// finish leaves the files as the next Open likes them: segments that end with their last record, of which those with room are gone on with, and a
// log of one head. A store in which
// nothing was written or used since it was opened is like that. Nobody else uses the engine.
func (e *Engine) finish(ctx context.Context) error {
	if e.wal == nil {
		return nil
	}
	if e.asOpened() && e.Poisoned() == nil {
		return nil
	}
	if err := e.Segments.Rest(); err != nil {
		return err
	}
	// What is dead goes before the checkpoint, since the log's new head names all of it that is still there: the next process would destroy it once more.
	// What could not be done the checkpoint tries again, and says.
	_ = e.reclaim(ctx)
	return e.Checkpoint(ctx)
}

// asOpened reports whether nothing was written or used since the store was opened, and nothing was left to do then.
func (e *Engine) asOpened() bool {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	waiting, _ := e.Catalog.Waiting()
	return !e.wal.Begun() && !e.dirty.Load() && e.recency.none() && len(e.unsealed) == 0 && !e.Segments.Uncut() && waiting == 0
}
