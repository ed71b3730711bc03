package db

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/engine"
)

// Checkpoint makes everything that was acknowledged so far durable, moves it from the log to the index, and deletes
// the log files that are no longer needed.
func (s *Store) Checkpoint(ctx context.Context) error {
	return s.onIndex(ctx, func() error { return s.checkpointOnce(ctx) })
}

func (s *Store) checkpointOnce(ctx context.Context) error {
	e, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	err = e.Checkpoint(ctx)
	if engine.IsIndexDamage(err) {
		s.indexDamaged(err)
	}
	return err
}

// Sync makes everything that was acknowledged so far durable, and destroys the bytes of what was deleted. Where refs went with that, it
// makes a checkpoint and writes the index anew, so that no file holds their names and metadata. It returns a [*PendingError] if open matches can still see some of those.
func (s *Store) Sync(ctx context.Context) error {
	return s.onIndex(ctx, func() error { return s.using(func(e *engine.Engine) error { return s.syncOnce(ctx, e) }) })
}

func (s *Store) syncOnce(ctx context.Context, e *engine.Engine) error {
	err := e.SyncAll(ctx)
	if engine.IsIndexDamage(err) {
		s.indexDamaged(err)
	}
	if err != nil {
		return err
	}
	if n, bytes := e.Segments.Pending(); n > 0 || e.Segments.PendingUnlinks() > 0 {
		open, _ := e.Segments.Leases()
		return &PendingError{Records: n, Bytes: bytes, Segments: e.Segments.PendingUnlinks(), Leases: open}
	}
	return nil
}
