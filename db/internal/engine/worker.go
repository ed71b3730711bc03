package engine

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Start runs the background worker: checkpoints, eviction above the high-water mark, expired refs, the Bloom filter. onDamage has a
// damaged index rebuilt.
func (e *Engine) Start(onDamage func(error)) {
	e.onDamage = onDamage
	if w, ok := e.o.FS.(Watcher); ok {
		w.Started(e)
	}
	e.bloomLoad.start()
	if e.Ledger.WAL == nil {
		close(e.done)
		return
	}
	go func() {
		defer close(e.done)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-e.stop; cancel() }()
		defer cancel()
		e.work(ctx)
	}()
	e.Signal() // a budget that is smaller than the last one, a Bloom filter that is missing
}

func (e *Engine) work(ctx context.Context) {
	interval := e.o.CheckpointInterval
	if interval < 0 {
		interval = time.Hour
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		due := false
		select {
		case <-e.stop:
			return
		case <-tick.C:
			due = e.o.CheckpointInterval > 0
		case <-e.wake:
		}
		if err := e.turn(ctx, due); err != nil && !errors.Is(err, context.Canceled) {
			e.log.Error("background work failed", "dir", e.Dir, "error", err)
			if IsIndexDamage(err) {
				e.onDamage(err)
			}
		}
	}
}

// manyLogFiles is how many files of the log killed processes may leave before the next one checkpoints as soon as it is open.
const manyLogFiles = 2

// turn does what is due. A removal for which the log has no room keeps it from nothing: a checkpoint makes room there. Nor does
// what cannot be destroyed.
func (e *Engine) turn(ctx context.Context, tick bool) error {
	if n := e.crowded.Load(); n > manyLogFiles { // else each process that is killed before its first checkpoint leaves one more
		if err := e.Space.Checkpoint(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
			return err
		}
	} else if n > 1 {
		e.Checkpoints.Lock()
		e.makeUp(ctx)
		e.Checkpoints.Unlock()
	}
	_, full := e.expireRefs()
	if full != nil && !errors.Is(full, vfs.ErrNoSpace) {
		return full
	}
	if err := e.evictToLowWater(ctx); errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrNotDestroyed) {
		full = errors.Join(full, err)
	} else if err != nil {
		return err
	}
	if (tick && e.Ledger.Dirty.Load()) || e.Ledger.Growth.Load() >= e.o.CheckpointBytes {
		if err := e.Space.Checkpoint(ctx); errors.Is(err, ErrNotDestroyed) {
			full = errors.Join(full, err)
		} else if err != nil {
			return errors.Join(full, err)
		}
	} else if n, _ := e.Segments.Pending(); e.deletions.Load() == 0 && (e.Segments.Ripe() || e.doomedEnough() || tick && n+e.Segments.PendingUnlinks() > 0) { // with a tick, what failed before, too
		if err := e.reclaim(ctx); errors.Is(err, ErrNotDestroyed) {
			full = errors.Join(full, err)
		} else if err != nil {
			return errors.Join(full, err)
		}
	}
	if e.BloomStale() {
		return errors.Join(full, e.RebuildBloom(ctx))
	}
	return full
}

// maybeBackground wakes the worker when there is something that should not wait for its tick.
func (e *Engine) maybeBackground() {
	if e.Ledger.Growth.Load() >= e.o.CheckpointBytes || e.aboveHighWater() || e.doomedEnough() || e.BloomStale() {
		e.Signal()
	}
}

// doomedEnough reports whether so many records wait to be destroyed that one sync of the log is worth it. A deletion that goes on does
// that itself, once for all of it.
func (e *Engine) doomedEnough() bool {
	if e.deletions.Load() > 0 {
		return false
	}
	n, _ := e.Catalog.Waiting()
	return n >= 1024
}

// aboveHighWater reports whether what is stored is above the high-water mark, or may be: pins have changed, and the worker counts them before it
// evicts.
func (e *Engine) aboveHighWater() bool {
	return e.above(0, 0) && (e.pinsOutdated() || e.aboveCounted())
}

// aboveCounted reports whether what is stored is above the high-water mark, by the pins that were counted last.
func (e *Engine) aboveCounted() bool {
	return e.above(e.pinned.bytes.Load(), e.pinned.blocks.Load())
}

// above reports whether what is stored is above the high-water mark if so much is pinned. What is dead does not count, because its pages are
// punched: where they cannot be, all that the files occupy does.
func (e *Engine) above(bytes, blocks int64) bool {
	if e.o.HighWater >= 1 {
		return false // puts evict what they need
	}
	n := e.Ledger.Counts()
	if e.Segments.Solid() {
		e.measureOnce()
		n.Bytes = e.space.used() - e.held()
	}
	return n.Bytes > e.byteMark(e.o.HighWater, bytes) || e.o.MaxBlocks > 0 && n.Blocks > mark(e.o.HighWater, e.o.MaxBlocks, blocks)
}

// held are the bytes that are evicted already, or of a retired model, and come back when the open matches are closed: evicting
// more in their place would empty the store under one long match.
func (e *Engine) held() int64 { return e.Segments.Held() }

// evictToLowWater evicts down to the low-water mark if what is stored is above the high one.
func (e *Engine) evictToLowWater(ctx context.Context) error {
	if !e.aboveHighWater() {
		return nil
	}
	if err := e.countPinned(); err != nil || !e.aboveCounted() {
		return err
	}
	if e.Segments.Solid() {
		if err := e.reclaim(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
			return err
		}
	}
	if _, err := e.evict(ctx, e.aboveLowWater); err != nil {
		return err
	}
	undone := e.reclaim(ctx)
	if undone != nil && !errors.Is(undone, ErrNotDestroyed) || !e.Segments.Solid() {
		return undone
	}
	if over := e.Measure() - e.held() - e.byteMark(e.o.HighWater, e.pinned.bytes.Load()); over > 0 {
		_, err := e.rewriteDead(ctx, over)
		return errors.Join(undone, err)
	}
	return undone
}

// aboveLowWater is how much is above the low-water mark. The caller holds ckptMu.
func (e *Engine) aboveLowWater() evictGoal {
	n := e.Ledger.Counts()
	if e.Segments.Solid() {
		coming := e.coming()
		_, dead := e.deadSegments() // comes back by rewriting, not by evicting more
		n.Bytes = e.space.used() - coming - max(0, dead-(coming-e.held()))
	}
	goal := evictGoal{bytes: n.Bytes - e.byteMark(e.o.LowWater, e.pinned.bytes.Load())}
	if e.o.MaxBlocks > 0 {
		goal.blocks = n.Blocks - mark(e.o.LowWater, e.o.MaxBlocks, e.pinned.blocks.Load())
	}
	return goal
}

// expireRefs drops the refs whose time is over, and says how many these were. It does not wait for the disk: a ref that a power cut brings back has
// run out as before, Store.Ref does not give it, and the next turn drops it again.
func (e *Engine) expireRefs() (n int, err error) {
	for _, name := range e.Catalog.Expired(time.Now()) {
		if _, err := e.dropRef(name, true); err != nil && !errors.Is(err, ErrNotFound) {
			return n, err
		}
		n++
	}
	return n, nil
}
