package engine

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// worker is the goroutine that works in the background.
type worker struct {
	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

func newWorker() worker {
	return worker{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// signal wakes it.
func (w *worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Start runs the background worker: checkpoints, eviction above the high-water mark, expired refs, the Bloom filter. onDamage has a
// damaged index rebuilt.
func (e *Engine) Start(onDamage func(error)) {
	e.Ledger.OnDamage = onDamage
	if w, ok := e.o.FS.(Watcher); ok {
		w.Started(e)
	}
	e.Filter.Start()
	if e.Ledger.ReadOnly() {
		close(e.worker.done)
		return
	}
	go func() {
		defer close(e.worker.done)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-e.worker.stop; cancel() }()
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
		case <-e.worker.stop:
			return
		case <-tick.C:
			due = e.o.CheckpointInterval > 0
		case <-e.worker.wake:
		}
		if err := e.turn(ctx, due); err != nil && !errors.Is(err, context.Canceled) {
			e.log.Error("background work failed", "dir", e.Dir, "error", err)
			e.Ledger.Damaged(err)
		}
	}
}

// manyLogFiles is how many files of the log killed processes may leave before the next one checkpoints as soon as it is open.
const manyLogFiles = 2

// turn does what is due. A removal for which the log has no room keeps it from nothing: a checkpoint makes room there. Nor does
// what cannot be destroyed.
func (e *Engine) turn(ctx context.Context, tick bool) error {
	if n := e.Space.Crowded(); n > manyLogFiles { // else each process that is killed before its first checkpoint leaves one more
		if err := e.Space.Checkpoint(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
			return err
		}
	} else if n > 1 {
		e.Space.MakeUp(ctx)
	}
	_, full := e.Ledger.ExpireRefs()
	if full != nil && !errors.Is(full, vfs.ErrNoSpace) {
		return full
	}
	if err := e.Space.EvictToLowWater(ctx); errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrNotDestroyed) {
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
	} else if n, _ := e.Segments.Pending(); !e.Remover.Underway() && (e.Segments.Ripe() || e.deadEnough() || tick && n+e.Segments.PendingUnlinks() > 0) { // with a tick, what failed before, too
		if err := e.Checkpoints.Reclaim(ctx); errors.Is(err, ErrNotDestroyed) {
			full = errors.Join(full, err)
		} else if err != nil {
			return errors.Join(full, err)
		}
	}
	if e.Filter.Stale() {
		return errors.Join(full, e.RebuildFilter(ctx))
	}
	return full
}

// maybeBackground wakes the worker when there is something that should not wait for its tick.
func (e *Engine) maybeBackground() {
	if e.Ledger.Growth.Load() >= e.o.CheckpointBytes || e.Space.AboveHighWater() || e.deadEnough() || e.Filter.Stale() {
		e.Signal()
	}
}

// deadEnough reports whether so many records wait to be destroyed that one sync of the log is worth it. A deletion that goes on does
// that itself, once for all of it.
func (e *Engine) deadEnough() bool {
	if e.Remover.Underway() {
		return false
	}
	n, _ := e.Catalog.Waiting()
	return n >= 1024
}

// RebuildFilter builds a Bloom filter of what is stored now. It rests beside restores, unless a checkpoint is due.
func (e *Engine) RebuildFilter(ctx context.Context) error {
	pace := e.workers.HousePace()
	return e.Filter.Rebuild(ctx, &pace, func() bool { return e.Ledger.Growth.Load() >= e.o.CheckpointBytes })
}
