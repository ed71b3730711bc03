package db

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/engine"
)

// checkIndex returns err, with which an operation ends that needs the index. If it says that the index is damaged, the index is rebuilt in the
// background as soon as no operation is under way, and operations that begin wait until that is done. The caller has entered the store.
func (s *Store) checkIndex(err error) error {
	var missing *NotStoredError
	if errors.As(err, &missing) && engine.IsIndexDamage(missing.Reason.Err) {
		err = missing.Reason.Err // nobody knows what is stored
	}
	if engine.IsIndexDamage(err) {
		s.indexDamaged(err)
	}
	return err
}

// indexDamaged notes that index.db cannot be trusted, and has it rebuilt in the background. Whoever enters the store after this gives way to that.
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
