package engine

import (
	"context"
	"errors"
)

// reserveBytes is what a put leaves of the budget for all that is not records, so that the budget holds while a checkpoint
// runs, and after one that comes late.
func (e *Engine) reserveBytes() int64 { return e.logReserve() + e.checkpointBytes() + e.headReserve() }

// headReserve is for models, refs and notes: each log file begins with them, one more than there are is made at a checkpoint, and those that are
// new since the last one are not in the others and in the index yet.
func (e *Engine) headReserve() int64 {
	n := e.Catalog.HeadBytes()
	return n + 2*min(n, e.stateGrowth.Load())
}

// logReserve is for the log, which grows, and has three files while it goes on in another, and for headers of segments.
func (e *Engine) logReserve() int64 { return min(4<<20, e.o.Budget/8) }

// moveReserve is what a move leaves of the budget: the same as a put, but of the log's share only what its files need. A checkpoint makes one
// more. If its process is killed before it can remove any, the next one begins another, and reserves a third. Puts leave more: else, once they
// and the index have filled the store, nothing could be moved, and evictions, which give no room back before a whole segment is dead, would go
// through the warm blocks.
func (e *Engine) moveReserve() int64 {
	log := min(3*e.LogOptions().PreallocBytes+e.Catalog.HeadBytes(), e.logReserve()*3/4)
	return log + e.checkpointBytes() + e.headReserve()
}

// allocateStep is how far ahead of its records a segment reserves disk blocks.
func (e *Engine) allocateStep() int64 { return min(4<<20, max(64<<10, e.o.Budget/64)) }

// indexRecordBytes is what a record adds to index.db: a row each in three tables, in pages that are half full.
const indexRecordBytes = 1 << 10

// checkpointBytes is by how much a checkpoint may lengthen the files until it is done: it writes all pages of the index
// anew before it frees the old ones, in place or in a second file, with what the index has not got yet; and the Bloom filter
// takes its room twice.
func (e *Engine) checkpointBytes() int64 {
	n := e.indexBytes.Load() + e.bloomBytes.Load()
	if e.Index != nil {
		n += e.Index.Unwritten() * indexRecordBytes
	}
	return n
}

// makeUp gives back what segments have reserved ahead, destroys what is dead, and evicts, for the log's files that they left, if the
// budget has not the room for as many again: so it holds however many are killed before a checkpoint of theirs has removed a file. The caller holds ckptMu.
func (e *Engine) makeUp(ctx context.Context) {
	if e.crowded.Swap(0) <= 1 {
		return
	}
	over := func() int64 { return e.space.used() + e.moveReserve() - e.o.Budget }
	if e.Measure(); over() <= 0 {
		return
	}
	e.giveBackAhead(ctx)
	_, err := e.reclaimLocked(ctx, nil) // what is dead, and waits since the kill, may be enough
	evicted := 0
	for n := 1; err == nil && n > 0 && over() > e.coming(); evicted += n {
		n, err = e.evictSome(evictGoal{bytes: over() - e.coming()})
	}
	if err == nil {
		_, err = e.reclaimLocked(ctx, nil)
	}
	e.log.Info("room was made for the log's files of processes that were killed", "dir", e.Dir, "evicted", evicted, "error", err)
}

// giveBackAhead gives back the disk blocks that segments have reserved ahead of their records: those of killed processes, where nobody writes
// any more, and those of models that nobody puts to just now. It returns how many bytes the latter were. What cannot be given back, on a full
// disk perhaps, keeps nobody from evicting: a checkpoint tries again with the former. The caller holds ckptMu.
func (e *Engine) giveBackAhead(ctx context.Context) (bytes int64) {
	left := len(e.unsealed) > 0
	lerr := e.sealLeftovers(ctx)
	bytes, err := e.Segments.GiveBackAhead()
	if err = errors.Join(lerr, err); err != nil {
		e.log.Warn("the room that segments had reserved ahead is not given back yet", "dir", e.Dir, "error", err)
	}
	if left || bytes > 0 {
		e.Measure()
	}
	return bytes
}

// ahead takes room for disk blocks that a segment reserves beyond what its record needs, if there is some without evicting.
// done ends it when they are reserved.
func (e *Engine) ahead(bytes int64) (done func(), ok bool) {
	if !e.measured.Load() || !e.diskHas(bytes, e.diskReserve()) || !e.space.reserve(bytes, e.o.Budget-e.reserveBytes()) {
		return nil, false
	}
	return func() { e.space.giveUp(bytes, 0) }, true
}
