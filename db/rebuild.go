package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/engine"
)

// checkIndex returns the error of an operation that needs the index, as its caller gets it. If the error is damage of the index, the store rebuilds
// that in the background as soon as no operation is under way. Operations that begin meanwhile wait. The caller has entered the store.
func (s *Store) checkIndex(err error) error {
	var missing *NotStoredError
	if errors.As(err, &missing) && engine.IsIndexDamage(missing.Reason.Err) {
		err = missing.Reason.Err // nobody knows what is stored
	}
	if !engine.IsIndexDamage(err) {
		return err
	}
	s.indexDamaged(err)
	return fmt.Errorf("the store rebuilds its index, make the call again: %w", err)
}

// indexDamaged has the index rebuilt in the background. Whoever enters the store after this gives way to the rebuild.
func (s *Store) indexDamaged(err error) {
	if s.rebuilding.CompareAndSwap(false, true) {
		s.o.Logger.Error("index is damaged and will be rebuilt", "dir", s.dir, "error", err)
		s.lifecycle.OwnLater(func() { s.rebuildIndex(err) })
	}
}

// rebuildIndex replaces the engine by one whose index is built from segments and log. The caller owns the store.
func (s *Store) rebuildIndex(cause error) {
	defer s.rebuilding.Store(false) // whoever meets damage after this, or after a Resume, asks again
	if s.eng == nil || s.suspended {
		return
	}
	if s.o.ReadOnly {
		if err := s.acquireLock(); err != nil {
			s.o.Logger.Error("index could not be rebuilt: it is read on as it is", "dir", s.dir, "error", err)
			return
		}
		defer s.opened()
	}
	old := s.eng
	old.Halt()
	unsaved := errors.Join(old.Space.Sync(), old.Abandon()) // if the rebuild fails, nobody else makes durable what there is
	e, err := engine.OpenRebuilt(context.Background(), s.dir, s.engineOptions(), cause)
	if err != nil {
		s.o.Logger.Error("index could not be rebuilt; the store is suspended until Resume", "dir", s.dir, "error", errors.Join(err, unsaved))
		s.suspended, s.unsaved = true, unsaved
		s.unlock()
		return
	}
	s.adopt(e)
	e.Start(s.indexDamaged)
}
