package db

import (
	"context"
	"errors"
	"time"
)

// start runs the background worker: checkpoints, eviction above the high-water mark, expired refs, the Bloom filter.
func (e *engine) start(s *Store) {
	e.onDamage = s.indexDamaged
	e.bloomLoad.start()
	if e.wal == nil {
		close(e.done)
		return
	}
	go func() {
		defer close(e.done)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-e.stop; cancel() }()
		defer cancel()
		e.work(ctx, s)
	}()
	e.signal() // a budget that is smaller than the last one, a Bloom filter that is missing
}

func (e *engine) work(ctx context.Context, s *Store) {
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
			e.log.Error("background work failed", "dir", e.dir, "error", err)
			if isIndexDamage(err) {
				s.indexDamaged(err)
			}
		}
	}
}

// turn does what is due. A removal for which the log has no room keeps it from nothing: a checkpoint makes room there. Nor does
// what cannot be destroyed.
func (e *engine) turn(ctx context.Context, tick bool) error {
	full := e.expireRefs()
	if full != nil && !errors.Is(full, ErrNoSpace) {
		return full
	}
	if err := e.evictToLowWater(ctx); errors.Is(err, ErrNoSpace) || errors.Is(err, ErrNotDestroyed) {
		full = errors.Join(full, err)
	} else if err != nil {
		return err
	}
	if (tick && e.dirty.Load()) || e.growth.Load() >= e.o.CheckpointBytes {
		if err := e.checkpoint(ctx); err != nil {
			return errors.Join(full, err)
		}
	} else if n, _ := e.set.Pending(); n > 0 || e.set.PendingUnlinks() > 0 || e.doomedEnough() {
		if err := e.reclaim(ctx); err != nil {
			return errors.Join(full, err)
		}
	}
	if e.bloomStale() {
		return errors.Join(full, e.rebuildBloom(ctx))
	}
	return full
}

// maybeBackground wakes the worker when there is something that should not wait for its tick.
func (e *engine) maybeBackground() {
	if e.growth.Load() >= e.o.CheckpointBytes || e.aboveHighWater() || e.doomedEnough() || e.bloomStale() {
		e.signal()
	}
}

// doomedEnough reports whether so many records wait to be destroyed that one sync of the log is worth it.
func (e *engine) doomedEnough() bool {
	n, _ := e.catalog.Waiting()
	return n >= 1024
}

// aboveHighWater reports whether what is stored is above the high-water mark. What is dead does not count, because its pages are punched:
// where they cannot be, all that the files occupy does.
func (e *engine) aboveHighWater() bool {
	if e.o.HighWater >= 1 {
		return false // puts evict what they need
	}
	n := e.counts()
	if e.set.Solid() {
		e.measureOnce()
		n.Bytes = e.space.used() - e.held()
	}
	return float64(n.Bytes) > e.o.HighWater*float64(e.o.Budget) ||
		e.o.MaxBlocks > 0 && float64(n.Blocks) > e.o.HighWater*float64(e.o.MaxBlocks)
}

// held are the bytes that are evicted already, or of a retired model, and come back when the open matches are closed: evicting
// more in their place would empty the store under one long match.
func (e *engine) held() int64 { return e.set.Held() }

// evictToLowWater evicts down to the low-water mark if what is stored is above the high one.
func (e *engine) evictToLowWater(ctx context.Context) error {
	if !e.aboveHighWater() {
		return nil
	}
	if e.set.Solid() {
		if err := e.reclaim(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
			return err
		}
	}
	if _, err := e.evict(ctx, e.aboveLowWater); err != nil {
		return err
	}
	undone := e.reclaim(ctx)
	if undone != nil && !errors.Is(undone, ErrNotDestroyed) || !e.set.Solid() {
		return undone
	}
	if over := e.measure() - e.held() - int64(e.o.HighWater*float64(e.o.Budget)); over > 0 {
		_, err := e.rewriteDead(ctx, over)
		return errors.Join(undone, err)
	}
	return undone
}

// aboveLowWater is how much is above the low-water mark. The caller holds ckptMu.
func (e *engine) aboveLowWater() evictGoal {
	n := e.counts()
	if e.set.Solid() {
		coming := e.coming()
		_, dead := e.deadSegments() // comes back by rewriting, not by evicting more
		n.Bytes = e.space.used() - coming - max(0, dead-(coming-e.held()))
	}
	goal := evictGoal{bytes: n.Bytes - int64(e.o.LowWater*float64(e.o.Budget))}
	if e.o.MaxBlocks > 0 {
		goal.blocks = n.Blocks - int64(e.o.LowWater*float64(e.o.MaxBlocks))
	}
	return goal
}

// expireRefs drops the refs whose time is over.
func (e *engine) expireRefs() error {
	for _, name := range e.catalog.Expired(time.Now()) {
		if err := e.dropRef(name, true); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}
