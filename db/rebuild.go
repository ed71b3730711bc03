package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/lifecycle"
)

// rebuilding is a rebuild of the index of an open store.
type rebuilding struct {
	began chan struct{} // closed when it has the store: before, it waits for the operations under way
	ended chan struct{}
}

// onIndex is using for an operation that needs the index. If it meets damage there, it is begun anew when that is rebuilt, unless ctx is
// done before. An operation that a callback of another one calls (of View, say) does not wait for ever for a rebuild that waits for that
// other one: it gets the damage as its error.
func onIndex(ctx context.Context, at door, do func(*engine.Engine) error) error {
	const attempts = 3
	s := at.store()
	for i := 1; ; i++ {
		was := s.rebuilt.Load()
		err := using(at, do)
		var missing *NotStoredError
		if !engine.IsIndexDamage(err) && !(errors.As(err, &missing) && engine.IsIndexDamage(missing.Reason.Err)) {
			return err
		}
		if s.rebuilt.Load() == was { // else it was rebuilt since
			s.indexDamaged(err)
		}
		if i == attempts {
			return err
		}
		if werr := s.awaitIndex(ctx); werr != nil {
			return errors.Join(err, werr)
		}
	}
}

// useIndex is onIndex, for an operation that gives something.
func useIndex[T any](ctx context.Context, at door, do func(*engine.Engine) (T, error)) (out T, err error) {
	err = onIndex(ctx, at, func(e *engine.Engine) (err error) {
		out, err = do(e)
		return err
	})
	return out, err
}

// awaitIndex waits until no rebuild of the index is under way.
func (s *Store) awaitIndex(ctx context.Context) error {
	r := s.rebuilding.Load()
	if r == nil {
		return nil
	}
	late := time.NewTimer(3 * lifecycle.Courtesy)
	defer late.Stop()
	select {
	case <-r.began:
	case <-late.C:
		return ErrIndexBusy
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("db: the index is being rebuilt: %w", ctx.Err())
	}
}

// indexDamaged notes that index.db cannot be trusted, and has it rebuilt in the background.
func (s *Store) indexDamaged(err error) {
	r := &rebuilding{began: make(chan struct{}), ended: make(chan struct{})}
	if s.rebuilding.CompareAndSwap(nil, r) {
		s.o.Logger.Error("index is damaged and will be rebuilt", "dir", s.dir, "error", err)
		go s.rebuildIndex(err, r)
	}
}

// rebuildIndex replaces the engine by one whose index is built from segments and log.
func (s *Store) rebuildIndex(cause error, r *rebuilding) {
	s.lifecycle.Own(context.Background(), nil)
	close(r.began)
	defer func() {
		s.rebuilt.Add(1)
		s.rebuilding.CompareAndSwap(r, nil) // whoever meets damage after this, or after a Resume, asks again
		close(r.ended)
		s.lifecycle.Disown()
	}()
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
	unsaved := errors.Join(old.Sync(), old.Abandon()) // if the rebuild fails, nobody else makes durable what there is
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
