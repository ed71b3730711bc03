package commit

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// A barrier is a frame of the log that says that segments and log are durable up to another frame. By it, damage of the log is told from
// an end that a crash tore, and after a power cut no record is read that it covers. Nothing is destroyed behind the last barrier, but for
// what was evicted.

// ErrNoBarrier says that a full disk has no room for a barrier.
var ErrNoBarrier = errors.New("no room for a barrier in the log")

// Barrier returns when everything up to frame lsn is durable, and a barrier that says so, too. One of the callers that wait does it for
// all of them. On a full disk everything may be durable without that (ErrNoBarrier); on any other error, frame lsn is, if the log could be
// synced.
func (l *Ledger) Barrier(lsn uint64) error {
	b := &l.barriers
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.any && b.lsn >= lsn {
		return nil
	}
	last := l.WAL.LastLSN()                   // before the sync of the segments begins: what the frames behind it put need not be part of that
	err := l.Segments.Sync()                  // what an earlier process left in them, too
	if lerr := l.WAL.Sync(last); err == nil { // begins the log, which syncs the files before. A deletion holds without the segments
		err = lerr
	}
	if err != nil {
		return err
	}
	at, err := l.LogBarrier(last)
	switch {
	case errors.Is(err, vfs.ErrNoSpace) && l.Poisoned() == nil:
		return fmt.Errorf("%w: %w", ErrNoBarrier, err)
	case err == nil:
		err = l.WAL.Sync(at)
	}
	if err != nil {
		return err
	}
	if b.any, b.lsn = true, last; at == last+1 {
		b.lsn = at // nothing was said since
	}
	return nil
}

// LogBarrier appends the frame. It counts when it is durable.
func (l *Ledger) LogBarrier(lsn uint64) (at uint64, err error) {
	op := oplog.Barrier{LSN: lsn}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Poisoned(); err != nil {
		return 0, err
	}
	return l.append(op, oplog.Encode(op)) // no growth: it comes with frames that are, and says nothing that a checkpoint should keep
}

// AllDurable is barrier of what there is, for who does without the frame where there is no room for it.
func (l *Ledger) AllDurable() error {
	err := l.Barrier(l.WAL.LastLSN())
	if errors.Is(err, ErrNoBarrier) {
		l.Logger.Warn("a full disk has no room for a barrier", "dir", l.Dir, "error", err)
		return nil
	}
	return err
}

// Checkpointed notes that segments and log are durable up to lsn, as the head of the next log file and the index say. The frame is for
// who finds no index.
func (l *Ledger) Checkpointed(lsn uint64) {
	b := &l.barriers
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.any && b.lsn >= lsn {
		return
	}
	b.any, b.lsn = true, lsn
	at, err := l.LogBarrier(lsn)
	switch {
	case err != nil:
		l.Logger.Info("no barrier after a checkpoint", "dir", l.Dir, "why", err)
	case at == lsn+1:
		b.lsn = at
	}
}
