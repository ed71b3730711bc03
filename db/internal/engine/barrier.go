package engine

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// A barrier is a frame of the log that says that segments and log are durable up to another frame. By it, damage of the log is told from
// an end that a crash tore, and after a power cut no record is read that it covers. Nothing is destroyed behind the last barrier, but for
// what was evicted.

// barriers writes them, one at a time.
type barriers struct {
	// turn holds one while one is being written. It is taken behind lock.Checkpoint and before lock.Commit, and is no lock.Mutex because the
	// tests of testing/synctest wait until nobody goes on: a wait for a channel counts there, one for a mutex does not.
	turn chan struct{}
	any  bool   // guarded by turn: there was one since the store was opened
	lsn  uint64 // guarded by turn: it covers up to this frame, and is durable itself
}

// Barrier returns when everything up to frame lsn is durable, and a barrier that says so, too. One of the callers that wait does it for
// all of them. On a full disk everything may be durable without that (ErrNoBarrier); on any other error, frame lsn is, if the log could be
// synced.
func (e *Engine) Barrier(lsn uint64) error {
	b := &e.barriers
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.any && b.lsn >= lsn {
		return nil
	}
	last := e.wal.LastLSN()                   // before the sync of the segments begins: what the frames behind it put need not be part of that
	err := e.Segments.Sync()                  // what an earlier process left in them, too
	if lerr := e.wal.Sync(last); err == nil { // begins the log, which syncs the files before. A deletion holds without the segments
		err = lerr
	}
	if err != nil {
		return err
	}
	at, err := e.logBarrier(last)
	switch {
	case errors.Is(err, vfs.ErrNoSpace) && e.Poisoned() == nil:
		return fmt.Errorf("%w: %w", ErrNoBarrier, err)
	case err == nil:
		err = e.wal.Sync(at)
	}
	if err != nil {
		return err
	}
	if b.any, b.lsn = true, last; at == last+1 {
		b.lsn = at // nothing was said since
	}
	return nil
}

// logBarrier appends the frame. It counts when it is durable.
func (e *Engine) logBarrier(lsn uint64) (at uint64, err error) {
	op := oplog.Barrier{LSN: lsn}
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	if err := e.Poisoned(); err != nil {
		return 0, err
	}
	return e.appendFrame(op, oplog.Encode(op)) // no growth: it comes with frames that are, and says nothing that a checkpoint should keep
}

// allDurable is barrier of what there is, for who does without the frame where there is no room for it.
func (e *Engine) allDurable() error {
	err := e.Barrier(e.wal.LastLSN())
	if errors.Is(err, ErrNoBarrier) {
		e.log.Warn("a full disk has no room for a barrier", "dir", e.Dir, "error", err)
		return nil
	}
	return err
}

// checkpointed notes that segments and log are durable up to lsn, as the head of the next log file and the index say. The frame is for
// who finds no index.
func (e *Engine) checkpointed(lsn uint64) {
	b := &e.barriers
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.any && b.lsn >= lsn {
		return
	}
	b.any, b.lsn = true, lsn
	at, err := e.logBarrier(lsn)
	switch {
	case err != nil:
		e.log.Info("no barrier after a checkpoint", "dir", e.Dir, "why", err)
	case at == lsn+1:
		b.lsn = at
	}
}
